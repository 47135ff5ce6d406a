"""A run whose first trainer profiles some of its steps: `profiled_training.py FIRST LAST TIMELINE CONFIG [...]`.

The timeline (Chrome's trace format) is of steps FIRST to LAST, both included, with the work of all threads on the GPU.
The line that is printed has the seconds that as many steps before them took.
"""

import json
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile

from bagpipe_hpc import api
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.step.slice_step import Session


def main() -> int:
    first, last, timeline, config, *overrides = sys.argv[1:]
    begin, end = int(first), int(last)
    before = 2 * begin - end - 1

    def train(session: Session) -> None:
        profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        since_s = 0.0
        for batch in session:
            if session.trainer == 0 and batch.step in (before, begin, end + 1):
                torch.cuda.synchronize()
                if batch.step == before:
                    since_s = time.perf_counter()
                elif batch.step == begin:
                    print(json.dumps({"seconds": time.perf_counter() - since_s}), flush=True)
                    profiler.start()
                else:
                    profiler.stop()
                    profiler.export_chrome_trace(timeline)
            logits = session.model(batch.dense, batch.embeddings)
            batch.backward(click_loss(logits, batch.labels, batch.batch_samples, batch.weights))

    return api.train(train, config, overrides)


if __name__ == "__main__":
    sys.exit(main())
