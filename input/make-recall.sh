#!/usr/bin/env bash
# Rollouts of the recall task with prompts of any length, the same for the same arguments.
# usage: make-recall.sh TOKENS GROUPS RESPONSES SEED > rollouts.jsonl
# A prompt is text with facts `[AB=12]` among words and ends in an open question `<AB=`; a response is two digits
# and `>` (right, or drawn), then words; its reward is 1 when the digits are right. Ids are bytes.
set -euo pipefail
[ $# -eq 4 ] || { sed -n 2,3p "$0" >&2; exit 2; }
awk -v tokens="$1" -v groups="$2" -v responses="$3" -v seed="$4" '
function draw(n) {   # 0 to n - 1, by a linear congruential generator: every awk gives the same
  state = (state * 16807) % 2147483647
  return int(state / 2147483647 * n)
}
function ids(text,   i, list) {
  list = code[substr(text, 1, 1)]
  for (i = 2; i <= length(text); ++i) list = list ", " code[substr(text, i, 1)]
  return list
}
function key() { return substr(letters, 1 + draw(26), 1) substr(letters, 1 + draw(26), 1) }
BEGIN {
  letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
  for (i = 0; i < 128; ++i) code[sprintf("%c", i)] = i
  count = split("the of and to in a is that for it as was with be by on not he his but at are this have", words, " ")
  state = seed * 48271 % 2147483647 + 1
  for (g = 0; g < groups; ++g) {
    asked = key(); answer = sprintf("%02d", draw(100))
    place = draw(int((tokens - 20) / 2))
    printf "{\"id\": \"recall-%d-%d-%d\", \"prompt\": [", tokens, seed, g
    length_so_far = 0; told = 0
    while (length_so_far < tokens - 4) {
      if (!told && length_so_far >= place) { piece = "[" asked "=" answer "]"; told = 1 }
      else piece = words[1 + draw(count)] " "
      if (length_so_far + length(piece) > tokens - 4) piece = substr(piece, 1, tokens - 4 - length_so_far)
      printf "%s, ", ids(piece)
      length_so_far += length(piece)
    }
    printf "%s], \"responses\": [", ids("<" asked "=")
    for (r = 0; r < responses; ++r) {
      right = r == 0 || draw(3) == 0
      text = (right ? answer : sprintf("%02d", draw(100))) ">"
      right = substr(text, 1, 2) == answer
      for (w = 0; w < 6; ++w) text = text " " words[1 + draw(count)]
      printf "%s{\"id\": \"g%dr%d\", \"ids\": [%s], \"reward\": %d}", (r ? ", " : ""), g, r, ids(text), right
    }
    print "]}"
  }
}'
