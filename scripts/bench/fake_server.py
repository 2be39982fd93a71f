#!/usr/bin/env python3
"""A decision server without a model, for measuring the client: every request gets the same answers at once.

Usage: fake_server.py PORT    (loopback only; ends with SIGTERM)
"""
import asyncio
import json
import sys

ANSWERS = {
    "urgent": {"type": "boolean", "label": "yes", "noul": 0.9, "confidence": 0.9,
               "probabilities": {"yes": 0.9, "no": 0.1}, "entropy": 0.3251, "hesitation": 0.469},
    "team": {"type": "choice", "label": "A", "choice": "billing", "confidence": 0.8,
             "probabilities": {"billing": 0.8, "support": 0.1, "engineering": 0.1}, "entropy": 0.639, "hesitation": 0.5817},
    "sentiment": {"type": "score", "label": "2", "level": "frustrated", "score": 2.0, "confidence": 0.8,
                  "probabilities": {"calm": 0.1, "frustrated": 0.8, "furious": 0.1}, "entropy": 0.639, "hesitation": 0.5817},
}
CONTENT = json.dumps({"answers": ANSWERS, "diagnostics": {"engine": "fake", "steps": 1, "timing": {"total_ms": 0.1}}})
BODY = json.dumps({
    "id": "1", "object": "chat.completion", "model": "fake",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": CONTENT}}],
    "usage": {"prompt_tokens": 204, "completion_tokens": 3, "total_tokens": 207},
}).encode()
REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Connection(asyncio.Protocol):
    """Answers each complete request on a connection that stays open."""

    def connection_made(self, transport):
        self.transport = transport
        self.data = b""

    def data_received(self, data):
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15:].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.data) < end + 4 + length:
                return
            self.data = self.data[end + 4 + length:]
            self.transport.write(REPLY)


async def main():
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", int(sys.argv[1]))
    print("ready", flush=True)
    await server.serve_forever()


asyncio.run(main())
