import asyncio
await asyncio.sleep(0.001)
'done'
# %% One loop for all cells
queue = asyncio.Queue()
async def worker():
    while True: print('got', await queue.get())
task = asyncio.create_task(worker())
await queue.put(1)
await asyncio.sleep(0)
# %%
await queue.put(2)
await asyncio.sleep(0)
task.done()
# %%
task.cancel()
await asyncio.sleep(0)
task.cancelled()
# %% asyncio.run works next to it, but not inside
asyncio.run(asyncio.sleep(0, 'ran'))
# %%
await asyncio.sleep(0)
asyncio.run(asyncio.sleep(0, 'ran'))
# %%
async def f(i):
    await asyncio.sleep(0)
    return i
await asyncio.gather(*[f(i) for i in range(3)])
# %%
[await f(i) for i in range(2)]
# %% Timeouts
try:
    await asyncio.wait_for(asyncio.sleep(10), 0.01)
except TimeoutError:
    print('late')
async with asyncio.timeout(10): pass
# %% Task groups
async def fail():
    raise ValueError('x')
async with asyncio.TaskGroup() as group:
    group.create_task(fail())
    group.create_task(asyncio.sleep(10))
# %% Errors show the program's frames alone
await fail()
# %% Deadlocks are reported
await asyncio.Event().wait()
# %%
async def hang():
    try: await asyncio.Lock().acquire(); await asyncio.Future()
    finally: print('cleaned up')
try: await hang()
finally: print('and here')
# %%
asyncio.run(hang())
# %% Threads run while the loop waits
await asyncio.to_thread(print, 1)
# %%
await asyncio.get_running_loop().run_in_executor(None, pow, 2, 3)
# %% Processes and networks
await asyncio.create_subprocess_exec('ls')
# %%
await asyncio.open_connection('example.com', 80)
# %%
await asyncio.start_server(print, '127.0.0.1', 80)
# %%
asyncio.get_event_loop().add_signal_handler(2, print)
# %% The exit of a task is the exit of the program
import sys
async def leave(): sys.exit(4)
await asyncio.gather(leave(), asyncio.sleep(1))
# %%
await asyncio.sleep(0); 'still there'
# %% A loop that was closed is replaced
asyncio.get_event_loop().close()
# %%
await asyncio.sleep(0, 'new loop')
# %% A coroutine that is not awaited
fail()
# %%
fail();
# %% Errors that are not retrieved
lost = asyncio.create_task(fail())
await asyncio.sleep(0.001)
del lost
# %% Pipes can be watched
import os
reader, writer = os.pipe()
os.write(writer, b'hello')
loop = asyncio.get_running_loop()
arrived = loop.create_future()
loop.add_reader(reader, lambda: arrived.done() or arrived.set_result(os.read(reader, 10)))
await asyncio.sleep(0)
received = await arrived
loop.remove_reader(reader)
received
# %% Async generators are closed
async def generator():
    try:
        yield 1
    finally:
        print('closed')
async for item in generator(): break
# %%
await asyncio.sleep(0)
