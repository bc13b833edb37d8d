"""The code that Belljar runs in a session's process: IPython's kernel, and the zygote that forks it.

| module | subject |
| --- | --- |
| `zygote` | the process that kernels are forked from |
| `entry` | how a forked process enters a sandbox |
| `kernel` | the kernel of one session |
| `one_shot`, `value_json` | helper cells for code that is run once |
| `event_loops` | ``asyncio.run()`` and the like in cells |
| `no_network` | the errors of lookups and connections without a network |
| `plotly_display` | the output of plotly's figures |
| `pip` | pip's command line, whose requests the host serves |
"""
