"""A document to start from.  Comments stand under the key ``//``, which is dropped."""

from __future__ import annotations

_EXAMPLE = """\
{
  "//": "An expert layer: the CPU norms the activations, gpu0 multiplies them with the experts.",
  "format": "splitproof/1",
  "name": "a small expert layer with a bank of four slots on the device",

  "symbols": {
    "//": "Least and greatest value. A verdict covers every value in between.",
    "n_tokens": [1, 2]
  },

  "memories": {
    "host": {"host": true, "bytes": 1073741824},
    "vram0": {"bytes": 1073741824}
  },

  "devices": [
    {
      "//": "In priority order, the CPU last. 'copy' says how copies on its queues are ordered.",
      "name": "gpu0", "memory": "vram0", "reads": ["vram0"],
      "async": true, "queues": ["compute", "copy"],
      "copy": [
        {"from": "host", "to": "vram0", "is": "stream"},
        {"from": "vram0", "to": "host", "is": "stream"}
      ],
      "deny": [
        {"//": "No op that sorts, and no wide expert products", "op": "argsort"},
        {"op": "mul_mat_id", "ne": {"src1": [null, null, "> 512"]}}
      ]
    },
    {
      "//": "What a synchronous device runs is a command of the host itself.",
      "name": "cpu", "memory": "host", "reads": ["host"], "async": false
    }
  ],

  "buffers": {
    "weights": {"memory": "host", "usage": "weights", "bytes": 17408},
    "host_compute": {"memory": "host", "usage": "compute", "bytes": 2048},
    "bank": {"memory": "vram0", "usage": "weights", "bytes": 10880},
    "gpu0_compute": {"memory": "vram0", "usage": "compute", "bytes": 4096}
  },

  "tensors": {
    "//": "Sizes innermost first; offsets in bytes. 'values' is a half-open range.",
    "x": {
      "dtype": "f32", "shape": [64, 1, "n_tokens"], "input": true,
      "buffer": "host_compute", "offset": 0
    },
    "ids": {
      "//": "Two experts of eight for each token, as a router chose them",
      "dtype": "i32", "shape": [2, "n_tokens"], "values": [0, 8], "input": true,
      "buffer": "host_compute", "offset": 512
    },
    "slot_ids": {
      "//": "The slots in which these experts lie: filling the bank writes them",
      "dtype": "i32", "shape": [2, "n_tokens"], "values": [0, 4],
      "buffer": "host_compute", "offset": 576
    },
    "h": {
      "dtype": "f32", "shape": [64, 1, "n_tokens"],
      "buffer": "host_compute", "offset": 1024
    },
    "up_exps": {"dtype": "q8_0", "shape": [64, 32, 8], "buffer": "weights", "offset": 0},
    "up_bank": {
      "//": "Four slots, and a spare one for kernels that read past an expert",
      "dtype": "q8_0", "shape": [64, 32, 5], "buffer": "bank", "offset": 0
    },
    "up": {"dtype": "f32", "shape": [32, 2, "n_tokens"]},
    "y": {"dtype": "f32", "shape": [32, 2, "n_tokens"], "output": true}
  },

  "banks": {
    "up_bank": {
      "//": "'when' must imply that the experts of one pass fit in the slots.",
      "caches": "up_exps", "layer": 0, "role": "up", "group": "experts", "slots": 4,
      "policy": "lru-slots", "ids": "ids", "slot_ids": "slot_ids", "when": "2*n_tokens <= 4"
    }
  },

  "nodes": [
    {"op": "rms_norm", "dst": "h", "src": ["x"], "params": {"eps": 1e-6}},
    {
      "//": "Reads the bank through slot ids; it means up_exps and ids.",
      "op": "mul_mat_id", "dst": "up", "src": ["up_bank", "h", "slot_ids"]
    },
    {"op": "silu", "dst": "y", "src": ["up"]}
  ],

  "assignment": {"h": "cpu", "up": "gpu0", "y": "gpu0"},

  "splits": [
    {"device": "cpu", "nodes": [0, 1], "inputs": []},
    {
      "//": "gpu0#h and gpu0#slot_ids are the copies of the inputs in its memory.",
      "device": "gpu0", "nodes": [1, 3], "inputs": ["h", "slot_ids"]
    }
  ],

  "placements": {
    "//": "Buffer and offset of what the entries under 'tensors' leave open.",
    "gpu0#h": ["gpu0_compute", 0],
    "gpu0#slot_ids": ["gpu0_compute", 512],
    "up": ["gpu0_compute", 1024],
    "y": ["gpu0_compute", 2048]
  },

  "repeat": 2
}
"""


def example() -> str:
    """A commented split-level document: an expert layer with a bank.  It loads."""
    return _EXAMPLE
