#!/usr/bin/env python3
"""gguf_to_f32.py SRC.gguf DST.gguf: the same model with every weight decoded to F32.

The oracle runs the rewritten file, so that its answers hold no rounding of activations (llama.cpp quantises activations
before it multiplies them with quantised weights) and hang on the stored weights alone.
Needs numpy and gguf==0.19.0; the decoders are those of the gguf package, not ours. Tensors are written one at a time:
peak memory is about two of the largest tensor.
"""

import os
import sys

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, quants

FROM_WRITER = ("general.architecture", "general.file_type")  # the writer sets the first, we set the second


def copy_metadata(reader, writer):
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in FROM_WRITER:
            continue
        kind = field.types[0]
        if kind == GGUFValueType.ARRAY:
            writer.add_key_value(key, field.contents(), kind, sub_type=field.types[-1])
        else:
            writer.add_key_value(key, field.contents(), kind)
    writer.add_file_type(LlamaFileType.ALL_F32)


def rewrite(src, dst):
    reader = GGUFReader(src)
    part = dst + ".part"
    writer = GGUFWriter(part, reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer)
    for t in reader.tensors:
        shape = [int(n) for n in reversed(t.shape)]  # gguf-py lists the fastest dimension first, numpy last
        writer.add_tensor_info(t.name, shape, np.dtype(np.float32), int(t.n_elements) * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for t in reader.tensors:
        values = quants.dequantize(t.data, t.tensor_type)
        writer.write_tensor_data(np.ascontiguousarray(values, dtype=np.float32))
    writer.close()
    os.replace(part, dst)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rewrite(sys.argv[1], sys.argv[2])
