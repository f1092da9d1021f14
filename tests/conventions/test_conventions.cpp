// House rules that a program can check, over all sources of the project.
#include "conventions/source.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

namespace longstraw::conventions {
namespace {

constexpr int longest_file = 600, longest_function = 80, longest_kernel = 150;
constexpr int longest_line = 100, most_parameters = 6;

using Folders = std::set<std::string>;
// What each folder may include of the others.
const std::map<std::string, Folders> may_include = {
    {"core", {}},
    {"deck", {"core"}},
    {"comm", {"core", "deck"}},
    {"io", {"core", "comm"}},
    {"kernels", {"core"}},
    {"model", {"kernels", "comm", "core", "deck"}},
    {"policy", {"model", "kernels", "comm", "core", "deck"}},
    {"sim", {"core", "deck", "comm", "io", "kernels", "model", "policy"}}};

// src/comm/grid.cpp and include/longstraw/comm/grid.hpp are of comm; src/main.cpp is of none.
std::string folder_of(const std::string& path) {
  std::smatch parts;
  if (path.starts_with("kernels/")) return "kernels";
  if (std::regex_search(path, parts, std::regex("^(src|include/longstraw)/([a-z]+)/")))
    return parts[2];
  return "";
}

bool below(const Source& source, std::initializer_list<const char*> folders) {
  return std::any_of(folders.begin(), folders.end(),
                     [&](const char* folder) { return source.path.starts_with(folder); });
}

std::vector<Source> product() { return sources_of({"include", "src", "kernels"}); }
std::vector<Source> everything() {
  return sources_of({"include", "src", "kernels", "tests", "bench"});
}

struct Found {
  std::string text;
  std::string place;
};

std::vector<Found> matches(const Source& source, const std::string& code, const char* pattern) {
  const std::regex expression(pattern);
  std::vector<Found> found;
  for (std::sregex_iterator match(code.begin(), code.end(), expression), end; match != end; ++match)
    found.push_back(
        {match->str(1), source.path + ":" + std::to_string(line_of(code, match->position()))});
  return found;
}

// Fails for each match of `pattern` in a product source where `allowed` does not hold.
template <class Allowed>
void expect_only(const char* pattern, Allowed&& allowed) {
  for (const auto& source : product()) {
    if (allowed(source)) continue;
    for (const auto& [text, place] : matches(source, source.skeleton, pattern))
      ADD_FAILURE() << place << ": " << text;
  }
}

TEST(Conventions, SeesTheProject) {
  EXPECT_GT(product().size(), 50u);
  for (const auto& source : product())
    EXPECT_TRUE(folder_of(source.path).empty() || may_include.contains(folder_of(source.path)))
        << source.path;
}

TEST(Conventions, FoldersIncludeWhatTheirRowLists) {
  for (const auto& source : product()) {
    const std::string folder = folder_of(source.path);
    if (folder.empty()) continue;
    for (const auto& [path, place] :
         matches(source, source.code, "#include \"longstraw/([a-z0-9_/]+)"))
      if (const auto slash = path.find('/'); slash != std::string::npos) {
        const std::string included = path.substr(0, slash);
        EXPECT_TRUE(included == folder || may_include.at(folder).contains(included))
            << place << ": " << folder << " may not include " << included;
      }
  }
}

TEST(Conventions, LibrariesStayBehindTheirFolders) {
  expect_only(R"((#include <mpi\.h>|\bMPI_[A-Z]\w*))", [](const Source& source) {
    return below(source, {"src/comm/", "src/io/", "include/longstraw/comm/"});
  });
  expect_only(R"(#include <(hdf5\.h)>)",
              [](const Source& source) { return source.path == "include/longstraw/io/hdf5.hpp"; });
  expect_only(R"((\bH5[A-Z]{1,2}[a-z]\w*\s*\())", [](const Source& source) {
    return below(source, {"src/io/", "include/longstraw/io/hdf5.hpp"});
  });
  expect_only(R"((\bKokkos(::|_Core)))", [](const Source& source) {
    return below(source, {"kernels/", "src/core/field.cpp", "src/comm/session.cpp"});
  });
  expect_only(R"((\bcblas_\w+|#include <cblas\.h>))",
              [](const Source& source) { return below(source, {"kernels/gemm/"}); });
  expect_only(R"((\w+::(sax_)?parse\s*\())", [](const Source& source) {
    return source.path == "include/longstraw/core/json_check.hpp";
  });
  expect_only(R"((\b__global__\b|<<<))", [](const Source& source) {
    return source.path.starts_with("kernels/") && source.path.ends_with(".cu");
  });
}

TEST(Conventions, NobodyExitsPrintsOrAllocatesByHand) {
  const auto nowhere = [](const Source&) { return false; };
  expect_only(R"(((std::|[^:\w.>])(_?exit|quick_exit)\s*\())", nowhere);
  expect_only(R"((std::(abort|terminate)\s*\())",
              [](const Source& source) { return source.path == "src/comm/session.cpp"; });
  expect_only(R"((\b(std::c(out|err|log)|f?printf|puts|fputs|putchar)\b))", nowhere);
  expect_only(R"((\bnew\s+[A-Za-z(]))", nowhere);
  expect_only(R"((\b(malloc|calloc|realloc)\s*\())", nowhere);
  expect_only(R"((\bstd::format\b))", nowhere);
  expect_only(R"((\busing namespace\b))",
              [](const Source& source) { return source.path.ends_with(".cpp"); });
}

// Variables that outlive a call: `static` inside functions and classes unless it names a function
// or a constant.
TEST(Conventions, ThereIsNoStaticState) {
  expect_only(
      R"(((static|thread_local)\s+(?!constexpr|const\b|_?assert)[\w:<>, ]+\s\w+\s*(=|;|\{)))",
      [](const Source&) { return false; });
}

// Labels are a path, so that tools can group by it.
TEST(Conventions, KernelsAreLabelled) {
  const std::regex path(R"(longstraw(::[a-z0-9_]+){2,})");
  size_t seen = 0;
  for (const auto& source : product()) {
    for (const char* pattern :
         {R"rx(\b\w*label\w*(?:\s*=\s*|\{|\()"([^"]*)")rx", R"rx(\.count\("([^"]*)")rx",
          R"rx(parallel_(?:for|reduce|scan)\(\s*"([^"]*)")rx"})
      for (const auto& [label, place] : matches(source, source.code, pattern)) {
        ++seen;
        EXPECT_TRUE(std::regex_match(label, path)) << place << ": label \"" << label << '"';
      }
    // The first argument of a launch is its label, by name or in full.
    for (const auto& [argument, place] :
         matches(source, source.code, R"(Kokkos::parallel_(?:for|reduce|scan)\(\s*([^,\s]+))"))
      EXPECT_TRUE(argument.starts_with("\"longstraw::") ||
                  argument.find("label") != std::string::npos)
          << place << ": launch without a label";
  }
  EXPECT_GT(seen, 20u);
}

TEST(Conventions, FilesFunctionsAndLinesHaveTheirSize) {
  size_t functions = 0;
  for (const auto& source : everything()) {
    const auto lines = std::count(source.text.begin(), source.text.end(), '\n');
    EXPECT_LE(lines, longest_file) << source.path;
    const bool kernel = below(source, {"kernels/"});
    for (const auto& function : functions_of(source.skeleton)) {
      ++functions;
      const std::string place = source.path + ":" + std::to_string(function.first_line);
      EXPECT_LE(function.lines, kernel ? longest_kernel : longest_function)
          << place << ": " << function.head;
      const bool free = kernel || source.path.starts_with("tests/");
      EXPECT_TRUE(free || function.parameters <= most_parameters)
          << place << ": " << function.parameters << " parameters: " << function.head;
    }
  }
  EXPECT_GT(functions, 500u);
}

TEST(Conventions, LinesFitTheScreen) {
  for (const auto& source : everything()) {
    int line = 1, columns = 0;
    for (char c : source.text) {
      // Bytes that go on with a character of UTF-8 take no column.
      columns += c != '\n' && (static_cast<unsigned char>(c) & 0xc0) != 0x80;
      if (c != '\n') continue;
      EXPECT_LE(columns, longest_line) << source.path << ":" << line;
      ++line, columns = 0;
    }
  }
}

TEST(Conventions, HeadersSayWhatTheyAreForAndGuardThemselves) {
  for (const auto& source : everything()) {
    if (!source.path.ends_with(".hpp")) continue;
    EXPECT_TRUE(source.text.starts_with("// ")) << source.path << ": no purpose at its top";
    EXPECT_NE(source.text.find("#pragma once\n"), std::string::npos) << source.path;
  }
}

// The checks above are only as good as this.
TEST(Source, IsStrippedAndCutIntoFunctions) {
  const std::string text =
      "// new exit(1)\n#define F(x) \\\n  { x }\nconst char* s = \"new { \\\" //\"; /* { */\n"
      "char c = '{'; int big = 1'000;\nnamespace a {\nstruct S {\n  int f(int x, int y) const {\n"
      "    return g({x}, y);\n  }\n};\n\ntemplate <class T, int n>\n"
      "T h(std::map<T, int> m = {},\n    T k = T(1, 2)) {\n  auto l = [&] {\n    return k;\n  };\n"
      "  return l();\n}\nvoid none() {}\nint list[] = {1, 2};\nS::S(int a) : b_(a), c_{a} {\n}\n}\n"
      "auto r = R\"({ new)\";\n";
  const std::string skeleton = code_of(text, true);
  EXPECT_EQ(skeleton.size(), text.size());
  EXPECT_EQ(skeleton.find("new"), std::string::npos);
  EXPECT_NE(code_of(text, false).find("new { "), std::string::npos);
  const auto functions = functions_of(skeleton);
  ASSERT_EQ(functions.size(), 4u);
  EXPECT_EQ(functions[0].head, "int f(int x, int y) const ");
  EXPECT_EQ(functions[0].first_line, 8);
  EXPECT_EQ(functions[0].lines, 3);
  EXPECT_EQ(functions[0].parameters, 2);
  EXPECT_EQ(functions[1].lines, 8);
  EXPECT_EQ(functions[1].parameters, 2);
  EXPECT_EQ(functions[2].parameters, 0);
  EXPECT_EQ(functions[3].parameters, 1);
}

}  // namespace
}  // namespace longstraw::conventions
