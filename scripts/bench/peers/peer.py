"""One library of the comparison, asked by the bench: peer.py ENGINE FOLDER ROWS QUESTIONS DIM

ROWS and QUESTIONS are files of raw little-endian f32, row by row, of unit length. The index is built on one thread,
or read from FOLDER where an earlier run left it. One JSON line then tells what building cost. Every line read, the
breadth of the search (ef), is one pass over all questions, answered by one JSON line {ef, us, ids}: CPU microseconds
a question, and the ids of the 10 nearest, one question after the other.

All questions of a pass go in with one call: none of the time measured is Python's.
"""

import json
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np  # noqa: E402  (reads the variable above)

K = 10
LINKS = 16
EF_BUILDING = 200
ROWS_AT_ONCE = 10_000


def in_parts(rows):
    for start in range(0, len(rows), ROWS_AT_ONCE):
        yield start, np.ascontiguousarray(rows[start : start + ROWS_AT_ONCE])


class Hnswlib:
    def __init__(self, dim):
        import hnswlib

        self.version = hnswlib.__version__ if hasattr(hnswlib, "__version__") else ""
        self.index = hnswlib.Index(space="ip", dim=dim)
        self.index.set_num_threads(1)

    def build(self, rows, path):
        self.index.init_index(max_elements=len(rows), M=LINKS, ef_construction=EF_BUILDING)
        for start, part in in_parts(rows):
            self.index.add_items(part, np.arange(start, start + len(part)), num_threads=1)
        self.index.save_index(path)

    def load(self, path, rows):
        self.index.load_index(path, max_elements=len(rows))
        self.index.set_num_threads(1)

    def search(self, questions, ef):
        self.index.set_ef(max(ef, K))
        return self.index.knn_query(questions, k=K, num_threads=1)[0]


class Usearch:
    def __init__(self, dim, dtype):
        from usearch.index import Index
        import usearch

        self.version = usearch.__version__
        self.index = Index(ndim=dim, metric="ip", dtype=dtype, connectivity=LINKS, expansion_add=EF_BUILDING)

    def build(self, rows, path):
        for start, part in in_parts(rows):
            self.index.add(np.arange(start, start + len(part)), part, threads=1)
        self.index.save(path)

    def load(self, path, _rows):
        self.index.load(path)

    def search(self, questions, ef):
        self.index.expansion_search = ef
        return self.index.search(questions, K, threads=1).keys


class Faiss:
    """HNSW over f32, over 8 bits, or over 8 bits with the best `OVERSAMPLED` times k scored again in f32."""

    OVERSAMPLED = 4

    def __init__(self, dim, form):
        import faiss

        faiss.omp_set_num_threads(1)
        self.faiss, self.form, self.version = faiss, form, faiss.__version__
        product = faiss.METRIC_INNER_PRODUCT
        if form == "f32":
            self.index = faiss.IndexHNSWFlat(dim, LINKS, product)
        else:
            self.index = faiss.IndexHNSWSQ(dim, faiss.ScalarQuantizer.QT_8bit, LINKS, product)
        self.index.hnsw.efConstruction = EF_BUILDING

    def build(self, rows, path):
        self.index.train(np.ascontiguousarray(rows))
        for _, part in in_parts(rows):
            self.index.add(part)
        self.faiss.write_index(self.index, path)

    def load(self, path, rows):
        self.index = self.faiss.read_index(path)
        self.refined = None
        if self.form == "refined":
            self.flat = self.faiss.IndexFlatIP(rows.shape[1])
            for _, part in in_parts(rows):
                self.flat.add(part)
            self.refined = self.faiss.IndexRefine(self.index, self.flat)
            self.refined.k_factor = self.OVERSAMPLED

    def search(self, questions, ef):
        self.index.hnsw.efSearch = ef
        return (self.refined or self.index).search(questions, K)[1]


# Name: how it is made, and the name under which its index is kept.
ENGINES = {
    "hnswlib": (Hnswlib, [], "hnswlib"),
    "usearch": (Usearch, ["f32"], "usearch"),
    "usearch-f16": (Usearch, ["f16"], "usearch-f16"),
    "faiss": (Faiss, ["f32"], "faiss"),
    "faiss-sq8": (Faiss, ["sq8"], "faiss-sq8"),
    "faiss-sq8-refined": (Faiss, ["refined"], "faiss-sq8"),
}


def resident_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1000


def main():
    name, folder, rows, questions, dim = sys.argv[1:6]
    dim = int(dim)
    rows = np.memmap(rows, dtype="<f4", mode="r").reshape(-1, dim)
    questions = np.fromfile(questions, dtype="<f4").reshape(-1, dim)
    make, form, kept = ENGINES[name]
    path, built = os.path.join(folder, kept + ".index"), os.path.join(folder, kept + ".json")
    if not os.path.exists(built):
        start = time.process_time()
        make(dim, *form).build(rows, path)
        with open(built, "w") as file:
            json.dump({"build_cpu_s": time.process_time() - start}, file)
    engine, before, start = make(dim, *form), resident_mb(), time.perf_counter()
    engine.load(path, rows)
    told = {"engine": name, "version": engine.version, "open_ms": (time.perf_counter() - start) * 1e3}
    with open(built) as file:
        told |= json.load(file)
    print(json.dumps(told | {"resident_mb": resident_mb() - before}), flush=True)
    for line in sys.stdin:
        ef = int(line)
        start = time.process_time()
        ids = engine.search(questions, ef)
        us = (time.process_time() - start) / len(questions) * 1e6
        print(json.dumps({"ef": ef, "us": us, "ids": np.asarray(ids).astype(int).ravel().tolist()}), flush=True)


main()
