"""From the start of `dgem decide` to its request on the wire, against a server on loopback that answers at once.

The clock starts before the process is made and stops when the first byte of the request has been read. Called by client.sh.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

program, runs = sys.argv[1], int(sys.argv[2])
answers = {
    "urgent": {"type": "boolean", "probabilities": {"yes": 0.9, "no": 0.1}},
    "team": {"type": "choice", "probabilities": {"billing": 0.8, "support": 0.1, "engineering": 0.1}},
    "sentiment": {"type": "score", "probabilities": {"calm": 0.1, "frustrated": 0.8, "furious": 0.1}},
}
content = json.dumps({"answers": answers})
body = json.dumps({"model": "m", "choices": [{"message": {"role": "assistant", "content": content}}]})
reply = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
arrived = []


def serve(listener):
    while True:
        connection, _ = listener.accept()
        received = connection.recv(1 << 16)
        arrived.append(time.perf_counter())
        head, _, rest = received.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(rest) < length:
            rest += connection.recv(1 << 16)
        connection.sendall(reply)
        connection.close()


listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=serve, args=(listener,), daemon=True).start()
url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
command = [program, "decide", "-q", "-u", url, "-t", "templates/support_triage.json.tmpl", "-v", "ticket=Help!"]
environment = {key: value for key, value in os.environ.items() if not key.startswith("DGEM_")}
to_wire, whole = [], []
for run in range(runs + 5):
    start = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    if run >= 5:  # the first fill the page cache
        to_wire.append((arrived[-1] - start) * 1e3)
        whole.append((time.perf_counter() - start) * 1e3)
for name, times in [("start to request on the wire", to_wire), ("start to end", whole)]:
    times.sort()
    p50, p95 = statistics.median(times), times[int(len(times) * 0.95)]
    print(f"{name}: p50 {p50:.1f} ms, p95 {p95:.1f} ms, least {times[0]:.1f} ms ({runs} runs)")
