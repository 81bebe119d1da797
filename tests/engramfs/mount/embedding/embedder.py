"""An embedder of topics: words that mean the same count for one.

    embedder.py command LOG [TURN]    answers lines; TURN moves the topics to other places of a vector
    embedder.py server LOG PORT       answers requests of POST /v1/embeddings

What is asked becomes a line of LOG. Of LOG.plan, each request takes the first line, and does what it says: busy, wrong-key,
hang, short, garbage. A line that begins with "always " stays.
"""

import http.server
import json
import os
import sys
import threading
import time

TOPICS = [("tea", "drink", "beverage"), ("server", "machine", "host"), ("invoice", "bill")]
PLAN = threading.Lock()
job, log_path = sys.argv[1:3]


def vector(text, turn=0):
    counts = [sum(word in text for word in topic) + 0.01 for topic in TOPICS]
    return counts[-turn:] + counts[:-turn] + [0.01]


def log(**asked):
    with open(log_path, "a") as file:
        file.write(json.dumps({"at": time.monotonic(), **asked}) + "\n")


def planned():
    path = log_path + ".plan"
    with PLAN:
        steps = open(path).read().split("\n") if os.path.exists(path) else [""]
        if steps[0].startswith("always "):
            return steps[0].removeprefix("always ")
        if any(steps):
            with open(path, "w") as file:
                file.write("\n".join(steps[1:]))
        return steps[0]


class Requests(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        texts, key = body["input"], self.headers["authorization"]
        log(path=self.path, model=body["model"], texts=texts, key=key)
        items = [{"index": index, "embedding": vector(text)} for index, text in enumerate(texts)]
        what = planned()
        if what == "hang":
            time.sleep(3600)
        status, answer = {
            "busy": (500, "busy"),
            "wrong-key": (401, f"{key} is no key of ours"),
            "short": (200, json.dumps({"data": items[1:]})),
            "garbage": (200, "at your service"),
        }.get(what, (200, json.dumps({"data": items})))
        answer = answer.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


if job == "server":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Requests).serve_forever()
turn = int(sys.argv[3]) if len(sys.argv) > 3 else 0
for line in sys.stdin:
    asked = json.loads(line)
    log(pid=os.getpid(), **asked)
    print(json.dumps({"vectors": [vector(text, turn) for text in asked["texts"]]}), flush=True)
