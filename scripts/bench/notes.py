"""Copies generated notes into a mount and asks for them: how soon they are found, how large the index is, how long questions take.

    python3 scripts/bench/notes.py target/release/engramfs [COUNT]
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

INDEX_KIND = 0x78
VOCABULARY = 30_000


def word(chance):
    return "".join(chance.choice("bcdfghklmnprst") + chance.choice("aeiou") for _ in range(chance.randint(1, 4)))


def generate(folder, count):
    """Writes Markdown files with words as frequent as in natural text; returns their bytes and some words."""
    chance = random.Random(7)
    vocabulary = sorted({word(chance) for _ in range(VOCABULARY)})
    chance.shuffle(vocabulary)
    words = iter(chance.choices(vocabulary, [1 / (rank + 1) for rank in range(len(vocabulary))], k=count * 650))
    total = 0
    for number in range(count):
        text = f"# Note {number}\n\n"
        for _ in range(chance.randint(2, 5)):
            text += "## " + " ".join(chance.choices(vocabulary, k=3)) + "\n\n"
            for _ in range(chance.randint(1, 3)):
                text += " ".join(next(words, "the") for _ in range(chance.randint(20, 80))) + ".\n\n"
        text += f"needle{number}\n"
        total += len(text)
        path = f"{folder}/d{number % 100}"
        os.makedirs(path, exist_ok=True)
        with open(f"{path}/n{number}.md", "w") as file:
            file.write(text)
    return total, vocabulary


def index_bytes(segments):
    total = 0
    for name in os.listdir(segments):
        with open(f"{segments}/{name}", "rb") as file:
            content = file.read()
        footer = int.from_bytes(content[-16:-8], "little")
        total += len(content) if content[-16 - footer] == INDEX_KIND else 0
    return total


def ask(branch, question):
    with open(f"{branch}/query", "r+b", buffering=0) as file:
        file.write(question.encode() + b"\n")
        answer = b""
        while chunk := file.read(1 << 20):
            answer += chunk
    return json.loads(answer.splitlines()[0])


def median_us(branch, question):
    return sorted(ask(branch, question)["us"] for _ in range(21))[10]


def main():
    program, count = os.path.abspath(sys.argv[1]), int((sys.argv[2:] or [20_000])[0])
    folder = tempfile.mkdtemp(prefix="engramfs-notes-")
    store, mnt, notes = (f"{folder}/{name}" for name in ("store", "mnt", "notes"))
    branch = f"{mnt}/main"
    os.mkdir(mnt)
    try:
        total, vocabulary = generate(notes, count)
        subprocess.check_call([program, "mount", store, mnt])
        began = time.monotonic()
        subprocess.check_call(["cp", "-a", notes, f"{branch}/files/"])
        copied = time.monotonic()
        header = ask(branch, f"needle{count - 1}")
        while header["hits"] != 1 or "reason" in header:
            time.sleep(0.05)
            header = ask(branch, f"needle{count - 1}")
        print(f"{count} files, {total / 1e6:.1f} MB, copied in {copied - began:.1f} s")
        print(f"the last one is found {time.monotonic() - copied:.2f} s after the copy")
        print(f"a frequent word {median_us(branch, vocabulary[0])} us, a rare one {median_us(branch, 'needle7')} us")
        print(f"records alone {median_us(branch, json.dumps({'text': 'needle7', 'scope': ['branch']}))} us")
        subprocess.check_call([program, "umount", mnt])
        print(f"index {index_bytes(store + '/segments') / total:.3f} of the text")
        began = time.monotonic()
        subprocess.check_call([program, "mount", store, mnt])
        assert ask(branch, "needle7")["hits"] == 1
        print(f"mounted again and answered after {time.monotonic() - began:.2f} s")
        subprocess.check_call([program, "umount", mnt])
    finally:
        subprocess.call(["umount", "-l", mnt], stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
