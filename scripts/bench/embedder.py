"""Embeds texts behind a mount and with ONNX Runtime from the same file, one thread each, in turns.

    python3 scripts/bench/embedder.py target/release/engramfs MODEL-FOLDER TEXTS.jsonl [COUNT]

The folder holds an ONNX file and tokenizer.json; needs the packages onnxruntime, tokenizers and numpy. `text` is read of each line.
"""

import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import onnxruntime
from tokenizers import Tokenizer

ROUNDS = 3
BATCH = 32
TOKENS_MAX = 256


def texts_of(path, count):
    opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path)
    with opened as lines:
        texts = dict.fromkeys(json.loads(line)["text"] for line in lines)
    return list(texts)[:count]


def onnx_file(folder):
    found = [f"{where}/{name}" for where, _, names in os.walk(folder) for name in names if name.endswith(".onnx")]
    assert len(found) == 1, found
    return found[0]


def with_onnx_runtime(folder, texts):
    """Seconds to tokenize, run and pool."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx_file(folder), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.enable_truncation(TOKENS_MAX)
    tokenizer.enable_padding()
    names = {given.name for given in session.get_inputs()}
    begun = time.perf_counter()
    # Texts of about one length waste no padding, as in engramfs.
    ordered = sorted(texts, key=len)
    for start in range(0, len(ordered), BATCH):
        encoded = tokenizer.encode_batch(ordered[start : start + BATCH])
        ids = numpy.array([one.ids for one in encoded], dtype=numpy.int64)
        mask = numpy.array([one.attention_mask for one in encoded], dtype=numpy.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        hidden = session.run(None, {name: value for name, value in given.items() if name in names})[0]
        if hidden.ndim == 3:
            weights = mask[:, :, None].astype(numpy.float32)
            hidden = (hidden * weights).sum(1) / weights.sum(1)
        hidden / numpy.linalg.norm(hidden, axis=1, keepdims=True)
    return time.perf_counter() - begun


def with_engramfs(program, folder, texts):
    """Seconds from a write of all texts until none is without a vector; the model is loaded before."""
    work = tempfile.mkdtemp()
    mnt = f"{work}/mnt"
    os.mkdir(mnt)
    command = ["taskset", "-c", "0", program, "mount", "--embed", folder, f"{work}/store", mnt]
    subprocess.run(command, check=True)

    def status():
        with open(f"{mnt}/main/status") as file:
            return json.load(file)

    try:
        while status()["embedder"]["state"] != "ready":
            time.sleep(0.05)
        lines = "".join(json.dumps({"id": f"t{number}", "text": text}) + "\n" for number, text in enumerate(texts))
        begun = time.perf_counter()
        with open(f"{mnt}/main/ingest", "w") as file:
            file.write(lines)
        while status()["index"]["unembedded"] > 0:
            time.sleep(0.02)
        return time.perf_counter() - begun
    finally:
        subprocess.run([program, "umount", mnt], check=True)
        shutil.rmtree(work)


def main():
    program, folder, path = sys.argv[1:4]
    texts = texts_of(path, int(sys.argv[4]) if len(sys.argv) > 4 else 1000)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(with_engramfs(program, folder, texts))
        theirs.append(with_onnx_runtime(folder, texts))
    ratio = statistics.median(ours) / statistics.median(theirs)
    print("| what | figure | measured | how |\n|---|---|---|---|")
    print(
        f"| {len(texts)} texts embedded behind a mount, beside ONNX Runtime {onnxruntime.__version__} on the same file, one thread, "
        f"in {ROUNDS} turns | ≤ 2 × | {ratio:.2f} × | {statistics.median(ours):.1f} s, {statistics.median(theirs):.1f} s |"
    )


main()
