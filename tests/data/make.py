#!/usr/bin/env python3
"""Makes notes.jsonl and questions.jsonl out of notes.txt: one record a line, with its embedding.

Needs the PyPI packages sentence-transformers and a folder with the model all-MiniLM-L6-v2 (384 dimensions,
unit length); name the folder as the only argument. Numbers are rounded to five decimals.
"""
import json
import sys
from pathlib import Path

from sentence_transformers import SentenceTransformer

HERE = Path(__file__).parent
QUESTIONS = [
    "why was a payment handled twice?",
    "how do we undo a bad release?",
    "what made the website unavailable?",
    "how are search results ordered?",
    "what may not be stacked?",
    "who answers customers in Portugal?",
]


def rounded(vector):
    return [round(float(number), 5) for number in vector]


def main():
    model = SentenceTransformer(sys.argv[1])
    notes = [line.split("|", 1) for line in (HERE / "notes.txt").read_text().splitlines()]
    vectors = model.encode([text for _, text in notes], normalize_embeddings=True)
    with open(HERE / "notes.jsonl", "w") as out:
        counts = {}
        for (topic, text), vector in zip(notes, vectors):
            counts[topic] = counts.get(topic, 0) + 1
            record = {"id": f"{topic}-{counts[topic]:02}", "text": text, "metadata": {"topic": topic}, "vector": rounded(vector)}
            out.write(json.dumps(record, separators=(",", ":")) + "\n")
    vectors = model.encode(QUESTIONS, normalize_embeddings=True)
    with open(HERE / "questions.jsonl", "w") as out:
        for text, vector in zip(QUESTIONS, vectors):
            out.write(json.dumps({"text": text, "k": 3, "vector": rounded(vector)}, separators=(",", ":")) + "\n")


main()
