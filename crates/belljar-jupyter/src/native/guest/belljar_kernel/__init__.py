"""What Belljar has run in a session's process: IPython's kernel, and how it comes to be.

| module | subject |
| --- | --- |
| `nursery` | the process that kernels are forked from |
| `kernel` | the kernel of one session |
| `figures` | what plotly's figures look like |
| `pip` | pip's command line, whose work is done by the host |
"""
