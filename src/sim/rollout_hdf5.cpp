#include "longstraw/sim/rollout_hdf5.hpp"

#include "longstraw/core/json_check.hpp"
#include "longstraw/io/lists.hpp"
#include "longstraw/policy/non_numbers.hpp"

#include <algorithm>
#include <array>

namespace longstraw {
namespace {

using json = nlohmann::ordered_json;
using Texts = ListReader<uint8_t>;
using Numbers = ListReader<double>;

constexpr int64_t format = 1;
// Members of a response that may be missing.
constexpr std::array optional_members = {"logprobs", "ref_logprobs", "loss_mask", "advantage",
                                         "finish_reason"};

bool is_optional(const std::string& key) {
  return std::find(optional_members.begin(), optional_members.end(), key) != optional_members.end();
}

h5::File opened(const std::string& file) {
  h5::File handle = h5::open_file(file);
  int64_t found = 0;
  try {
    require(h5::has_attribute(handle, "format") && h5::exists(handle, "groups"),
            "it is HDF5, but no rollouts file (it has no attribute format or no groups) - "
            "longstraw convert makes one from JSON lines");
    found = h5::read_integer_attribute(handle, "format");
  } catch (const Error& error) {
    throw Error(str("{}: {}", file, error.what()));
  }
  require(found == format,
          "{} is a rollouts file of format {}, this program reads format {} - convert it to JSON "
          "lines with the program that wrote it",
          file, found, format);
  return handle;
}

std::string text_of(const std::vector<uint8_t>& bytes, const std::string& name, int64_t index) {
  std::string text(bytes.begin(), bytes.end());
  try {
    (void)json(text).dump();
  } catch (const json::exception&) {
    throw Error(str("{}: entry {} is no UTF-8 text", name, index));
  }
  return text;
}

// Adds the members that have no dataset to `object`, which has the others already. Returns whether
// there are non-numbers among them, which are marked.
bool add_other(json& object, const std::vector<uint8_t>& bytes, const std::string& name,
               int64_t index) {
  if (bytes.empty()) return false;
  const auto [other, marked] =
      parse_marked_json({bytes.begin(), bytes.end()}, str("{}: entry {}", name, index));
  require(other.is_object(), "{}: entry {} is no JSON object", name, index);
  for (const auto& [key, value] : other.items()) {
    // Whole numbers as ids, null for what is not given: members in another form than the datasets'.
    const bool other_form = key == "id"
                                ? value.is_number_integer() && value.dump() == object["id"]
                                : is_optional(key) && !object.contains(key) &&
                                      (value.is_null() || (key == "finish_reason" && value == ""));
    require(other_form || (key != "id" && !is_optional(key) && !object.contains(key)),
            "{}: entry {} holds {}, which has a dataset of its own", name, index, key);
    object[key] = value;
  }
  return marked;
}

json token_list(const std::vector<int32_t>& ids) {
  json list = json::array();
  // Only numbers without a sign pass as token ids.
  for (const int32_t id : ids)
    list.push_back(id < 0 ? json(int64_t{id}) : json(static_cast<uint64_t>(id)));
  return list;
}

}  // namespace

// ---- reading

struct RolloutHdf5Reader::Tokens {
  explicit Tokens(const std::string& file)
      : handle(opened(file)), ids(handle, file, "groups/prompt") {}
  h5::File handle;
  FlatReader<int32_t> ids;
};

struct RolloutHdf5Reader::Columns {
  Columns(const h5::File& handle, const std::string& file, OtherMembers others)
      : prompts(handle, file, "groups/prompt_offsets"),
        responses(handle, file, "groups/response_offsets"),
        group_id(handle, file, "groups/id", groups()),
        reward(handle, file, "responses/reward"),
        id(handle, file, "responses/id", reward.size()),
        ids(handle, file, "responses/ids", reward.size()) {
    require(prompts.size() == groups(), "{} has {} elements, expected {} (one more than groups)",
            prompts.name(), prompts.size() + 1, groups() + 1);
    const auto open = [&]<class T>(std::optional<ListReader<T>>& column, const std::string& path,
                                   int64_t size) {
      if (h5::exists(handle, path) || h5::exists(handle, path + "_offsets"))
        column.emplace(handle, file, path, size);
    };
    const int64_t all = reward.size();
    open(logprobs, "responses/logprobs", all);
    open(ref_logprobs, "responses/ref_logprobs", all);
    open(loss_mask, "responses/loss_mask", all);
    open(advantage, "responses/advantage", all);
    open(finish_reason, "responses/finish_reason", all);
    if (others == OtherMembers::left) return;
    open(group_other, "groups/other", groups());
    open(other, "responses/other", all);
  }
  int64_t groups() const { return responses.size(); }

  OffsetsReader prompts, responses;
  Texts group_id;
  FlatReader<double> reward;
  Texts id;
  ListReader<int32_t> ids;
  std::optional<Numbers> logprobs, ref_logprobs, advantage;
  std::optional<Texts> loss_mask, finish_reason, group_other, other;
};

RolloutHdf5Reader::RolloutHdf5Reader(const std::string& file, OtherMembers other)
    : GroupReader(file), other_(other), tokens_(std::make_shared<const Tokens>(file)) {}

RolloutHdf5Reader::~RolloutHdf5Reader() = default;

ReadTokens RolloutHdf5Reader::tokens() const {
  return [held = tokens_](int64_t begin, std::span<int32_t> to) { held->ids.read(begin, to); };
}

void RolloutHdf5Reader::read_responses(RawGroup& group, Range which) const {
  const Columns& c = *columns_;
  std::vector<double> rewards(which.size());
  c.reward.read(which.begin, rewards);
  std::vector<json> responses(which.size());
  const auto each = [&](const auto& column, const auto& act) {
    const auto lists = column.lists(which);
    for (size_t i = 0; i < lists.size(); ++i)
      act(responses[i], lists[i], which.begin + static_cast<int64_t>(i));
  };
  const auto given = [&](const auto& column, const char* key) {
    if (!column) return;
    each(*column, [&](json& response, const auto& list, int64_t) {
      if (!list.empty()) response[key] = list;
    });
  };
  each(c.id, [&](json& response, const auto& bytes, int64_t index) {
    response["id"] = text_of(bytes, c.id.name(), index);
  });
  each(c.ids, [](json& response, const auto& ids, int64_t) { response["ids"] = token_list(ids); });
  for (size_t i = 0; i < rewards.size(); ++i) responses[i]["reward"] = rewards[i];
  given(c.logprobs, "logprobs");
  given(c.ref_logprobs, "ref_logprobs");
  given(c.loss_mask, "loss_mask");
  if (c.advantage)
    each(*c.advantage, [&](json& response, const auto& list, int64_t index) {
      require(list.size() <= 1, "{}: response {} has {} values, expected one or none",
              c.advantage->name(), index, list.size());
      if (!list.empty()) response["advantage"] = list[0];
    });
  if (c.finish_reason)
    each(*c.finish_reason, [&](json& response, const auto& bytes, int64_t index) {
      if (!bytes.empty())
        response["finish_reason"] = text_of(bytes, c.finish_reason->name(), index);
    });
  if (c.other)
    each(*c.other, [&](json& response, const auto& text, int64_t index) {
      group.marked |= add_other(response, text, c.other->name(), index);
    });
  group.object["responses"] = responses;
}

std::optional<RawGroup> RolloutHdf5Reader::next() {
  if (!columns_) columns_ = std::make_unique<const Columns>(tokens_->handle, file(), other_);
  const Columns& c = *columns_;
  if (next_ == c.groups()) return std::nullopt;
  const Range one{next_, next_ + 1};
  RawGroup group;
  group.place = {file(), one.end};
  group.object["id"] = text_of(c.group_id.lists(one)[0], c.group_id.name(), one.begin);
  group.object["prompt"] = nullptr;
  group.prompt = {c.prompts.ranges(one, tokens_->ids.size())[0], tokens()};
  read_responses(group, c.responses.ranges(one, c.reward.size())[0]);
  if (c.group_other)
    group.marked |=
        add_other(group.object, c.group_other->lists(one)[0], c.group_other->name(), one.begin);
  ++next_;
  return group;
}

// ---- writing

struct RolloutHdf5Writer::Columns {
  // Chunks: what one read of a prompt's slice costs more than the slice; what few responses need.
  static constexpr int64_t prompt_chunk = int64_t{1} << 15, token_chunk = int64_t{1} << 13;

  explicit Columns(const std::string& path)
      : handle(h5::create_file(path)),
        groups(made(handle, "groups", "one entry a group: a prompt and its responses")),
        responses(made(handle, "responses", "one entry a response, those of a group in a row")),
        group_id(handle, "groups/id", {"name of the group, UTF-8"}),
        prompt(handle, "groups/prompt", {"token ids of the group's prompt", prompt_chunk}),
        response_offsets(handle, "groups/response_offsets",
                         {"first response of each group among all responses; the last element is "
                          "how many there are"}),
        group_other(handle, "groups/other",
                    {"members of the group without a dataset of their own, a JSON object"}),
        id(handle, "responses/id", {"name of the response, UTF-8"}),
        ids(handle, "responses/ids", {"token ids of the response", token_chunk}),
        reward(handle, "responses/reward", {"reward of the response"}),
        logprobs(handle, "responses/logprobs",
                 {"log-probability of each token under the old policy, natural logarithm; empty: "
                  "not given",
                  token_chunk}),
        ref_logprobs(handle, "responses/ref_logprobs",
                     {"log-probability of each token under the reference policy, natural "
                      "logarithm; empty: not given",
                      token_chunk}),
        loss_mask(handle, "responses/loss_mask",
                  {"1: the token counts in the loss, 0: it is context only; empty: all count",
                   token_chunk}),
        advantage(handle, "responses/advantage",
                  {"advantage, in the reward's units; empty: not "
                   "given"}),
        finish_reason(handle, "responses/finish_reason",
                      {"why the response ended (stop, length), UTF-8; empty: not given"}),
        other(handle, "responses/other",
              {"members of the response without a dataset of their own, a JSON object"}) {
    response_offsets.append(0);
    h5::write_attribute(handle, "format", format);
    h5::write_attribute(handle, "meaning",
                        "rollouts of LongStraw: groups of responses to a prompt, as token ids. Of "
                        "each pair NAME, NAME_offsets, entry i is the elements of NAME from "
                        "NAME_offsets[i] to before NAME_offsets[i + 1]");
  }

  static h5::Group made(const h5::File& handle, const std::string& path,
                        const std::string& meaning) {
    h5::Group group = h5::create_group(handle, path);
    h5::write_attribute(group, "meaning", meaning);
    return group;
  }

  void put_response(const json& response, bool marked);
  void finish();

  h5::File handle;
  h5::Group groups, responses;
  ListWriter<uint8_t> group_id;
  ListWriter<int32_t> prompt;
  FlatWriter<int64_t> response_offsets;
  ListWriter<uint8_t> group_other;
  ListWriter<uint8_t> id;
  ListWriter<int32_t> ids;
  FlatWriter<double> reward;
  ListWriter<double> logprobs, ref_logprobs;
  ListWriter<uint8_t> loss_mask;
  ListWriter<double> advantage;
  ListWriter<uint8_t> finish_reason, other;
};

namespace {

void add_text(ListWriter<uint8_t>& column, const std::string& text) {
  column.add_list({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

template <class T>
void add_given(ListWriter<T>& column, const json& object, const char* key) {
  const auto found = object.find(key);
  column.add_list(found == object.end() || found->is_null() ? std::vector<T>{}
                                                            : found->get<std::vector<T>>());
}

// The members that the datasets do not hold, or not in this form, as text.
template <class Holds>
std::string other_members(const json& object, const Holds& hold, bool marked) {
  json other = json::object();
  for (const auto& [key, value] : object.items())
    if (!hold(key, value)) other[key] = value;
  if (other.empty()) return {};
  const std::string text = json_text(other);
  return marked ? with_bare_non_numbers(text) : text;
}

bool group_has(const std::string& key, const json& value) {
  return key == "prompt" || key == "responses" || (key == "id" && value.is_string());
}

bool response_has(const std::string& key, const json& value) {
  if (key == "id") return value.is_string();
  if (key == "finish_reason") return value.is_string() && value != "";
  return key == "ids" || key == "reward" || (is_optional(key) && !value.is_null());
}

}  // namespace

void RolloutHdf5Writer::Columns::put_response(const json& response, bool marked) {
  add_text(id, identity(response, "response"));
  add_given(ids, response, "ids");
  reward.append(response.at("reward").get<double>());
  add_given(logprobs, response, "logprobs");
  add_given(ref_logprobs, response, "ref_logprobs");
  add_given(loss_mask, response, "loss_mask");
  const auto given = response.find("advantage");
  if (given != response.end() && !given->is_null()) {
    const double value = given->get<double>();
    advantage.append({&value, 1});
  }
  advantage.end_list();
  const auto reason = response.find("finish_reason");
  const bool ended = reason != response.end() && reason->is_string();
  add_text(finish_reason, ended ? reason->get<std::string>() : "");
  add_text(other, other_members(response, response_has, marked));
}

void RolloutHdf5Writer::Columns::finish() {
  const auto close = [](auto&... columns) { (columns.finish(), ...); };
  close(group_id, prompt, response_offsets, group_other, id, ids, reward, logprobs, ref_logprobs,
        loss_mask, advantage, finish_reason, other);
}

RolloutHdf5Writer::RolloutHdf5Writer(const std::string& path)
    : path_(path), columns_(std::make_unique<Columns>(path)) {}

RolloutHdf5Writer::~RolloutHdf5Writer() = default;

void RolloutHdf5Writer::put(const RawGroup& group) {
  Columns& c = *columns_;
  add_text(c.group_id, identity(group.object, "group"));
  for (int64_t begin = 0; begin < group.prompt.size(); begin += prompt_piece)
    c.prompt.append(group.prompt.ids({begin, std::min(begin + prompt_piece, group.prompt.size())}));
  c.prompt.end_list();
  for (const json& response : group.object.at("responses")) c.put_response(response, group.marked);
  c.response_offsets.append(c.reward.size());
  add_text(c.group_other, other_members(group.object, group_has, group.marked));
}

void RolloutHdf5Writer::finish() {
  columns_->finish();
  columns_->groups.reset("cannot close " + path_);
  columns_->responses.reset("cannot close " + path_);
  columns_->handle.reset("cannot write " + path_);
}

}  // namespace longstraw
