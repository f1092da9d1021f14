#!/usr/bin/env python3
"""Compares LongStraw with Hugging Face transformers, where torch and transformers are installed.

usage: compare_transformers.py PROGRAM CHECKPOINT ROLLOUTS [RESPONSES]

Loads CHECKPOINT (such as the weights/ of a run) with from_pretrained in float32, scores the first RESPONSES (default 16) of
ROLLOUTS with it and with `PROGRAM score`, and prints the largest difference of a token's log-probability. Exit status 1
when that is above 1e-3: float32 keeps about 1e-4 here.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

BOUND = 1e-3


def scored_by_program(program, checkpoint, rollouts, folder):
    deck, out = folder / "deck.ini", folder / "scored.jsonl"
    deck.write_text(f"[model]\ncheckpoint = {checkpoint}\n[rollouts]\nfile = {rollouts}\n")
    subprocess.run([program, "score", "-i", str(deck), "-o", str(out)], check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in out.read_text().splitlines()]


def logprobs(model, prompt, ids):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + ids[:-1]]), use_cache=False).logits[0, len(prompt) - 1:]
    return torch.log_softmax(logits.float(), -1).gather(-1, torch.tensor(ids)[:, None])[:, 0].tolist()


def main(program, checkpoint, rollouts, most=16):
    program, checkpoint, rollouts = (str(Path(p).resolve()) for p in (program, checkpoint, rollouts))
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()
    worst = (0.0, None)
    with tempfile.TemporaryDirectory() as folder:
        groups = scored_by_program(program, checkpoint, rollouts, Path(folder))
    pairs = [(g["prompt"], r) for g in groups for r in g["responses"]][:int(most)]
    for prompt, response in pairs:
        expected = logprobs(model, prompt, response["ids"])
        worst = max(worst, (max(abs(a - b) for a, b in zip(expected, response["logprobs"])), response["id"]))
    print(f"{len(pairs)} responses: largest difference of a log-probability {worst[0]:.3g} (response {worst[1]}), bound {BOUND:g}")
    return int(worst[0] > BOUND)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
