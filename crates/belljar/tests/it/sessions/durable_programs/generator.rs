//! Draws Python programs that wait in many ways from a seed.
//!
//! Each coroutine has a log of its own, which it returns, so that what a program prints depends on its structure and
//! not on the time that a wait takes. Calls of the tool `get` reply with their number, and those of `hang` never reply.

/// The number of calls after which a program makes no further ones.
const MAX_CALLS: u32 = 6;
/// The depth of coroutines that await coroutines.
const MAX_DEPTH: u32 = 2;

/// The number of awaitable expressions that each kind of statement has in addition to its own call.
const EXPRESSIONS: [usize; 20] = [2, 2, 2, 2, 1, 1, 1, 0, 1, 0, 2, 0, 0, 0, 1, 1, 2, 2, 2, 2];

/// The beginning of each program.
const PRELUDE: &str = "\
import asyncio, contextvars, random
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from tools import t
marker = contextvars.ContextVar('marker', default=None)
class Failure(Exception): pass
async def call(number):
    return await t.get(value=number)
async def fail(number):
    await call(number)
    raise Failure(f'failed after {number}')
async def until_cancelled(log, wait):
    try:
        await wait
    except asyncio.CancelledError as error:
        log.append(['cancelled', *error.args])
        raise
    finally:
        await asyncio.sleep(0.001)
        log.append('ended')
";

/// Draws the program of a seed.
pub(super) fn program(seed: u64) -> String {
    let mut generator = Generator { random: Random::new(seed), code: PRELUDE.to_owned(), functions: 0, calls: 0 };
    generator.code.push_str(&format!("random.seed({seed})\n"));
    let functions: Vec<String> = (0..2 + generator.below(2)).map(|_| generator.function(0)).collect();
    let Generator { mut random, mut code, .. } = generator;
    code.push_str("file = open('log.txt', 'w')\n");
    for function in functions {
        let drawn = random.below(3);
        code.push_str(&format!(
            "log = await {function}({drawn})\nprint(random.random(), log)\nfile.write(repr(log))\n"
        ));
    }
    code.push_str("file.close()\n");
    code.push_str(match random.below(8) {
        0 => "raise Failure(open('log.txt').read())",
        1 => "raise ExceptionGroup('several', [Failure(1), ValueError(marker.get())])",
        _ => "(len(open('log.txt').read()), random.getrandbits(32), marker.get(), len(asyncio.all_tasks()))",
    });
    code
}

/// A generator of random numbers (SplitMix64).
pub(in crate::sessions) struct Random(u64);

impl Random {
    pub(in crate::sessions) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `limit`.
    pub(in crate::sessions) fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        u32::try_from((mixed ^ (mixed >> 31)) % u64::from(limit)).unwrap()
    }
}

struct Generator {
    random: Random,
    code: String,
    functions: u32,
    calls: u32,
}

impl Generator {
    fn below(&mut self, limit: u32) -> u32 {
        self.random.below(limit)
    }

    /// Writes a coroutine function that returns its log, and returns its name.
    fn function(&mut self, depth: u32) -> String {
        let mut body = String::new();
        for _ in 0..1 + self.below(3) {
            let statement = self.statement(depth);
            body.extend(statement.lines().map(|line| format!("    {line}\n")));
        }
        self.functions += 1;
        let name = format!("f{}", self.functions);
        let head = format!("async def {name}(n):\n    log, rng = [], random.Random(n)\n    marker.set(n)\n");
        self.code
            .push_str(&format!("{head}{body}    log.append([marker.get(), rng.randrange(1000)])\n    return log\n"));
        name
    }

    /// Returns the number of a new call.
    fn number(&mut self) -> u32 {
        self.calls += 1;
        self.calls - 1
    }

    /// Returns an expression that can be awaited and has a value.
    fn awaitable(&mut self, depth: u32) -> String {
        let has_calls = self.calls < MAX_CALLS;
        match self.below(4) {
            0 | 1 if has_calls => format!("call({})", self.number()),
            2 if depth < MAX_DEPTH && has_calls => {
                let argument = self.below(10);
                format!("{}({argument})", self.function(depth + 1))
            }
            _ => format!("asyncio.sleep({}, 'slept')", self.seconds()),
        }
    }

    /// Returns the time of a short wait.
    fn seconds(&mut self) -> &'static str {
        ["0", "0.001", "0.002", "0.004"][self.below(4) as usize]
    }

    /// Returns an expression that waits until it is cancelled.
    fn endless(&mut self) -> &'static str {
        ["asyncio.sleep(600)", "asyncio.Event().wait()", "t.hang()"][self.below(3) as usize]
    }

    /// Returns an expression that waits until it is cancelled, without a call: its time is too short for an approval.
    fn endless_wait(&mut self) -> &'static str {
        ["asyncio.sleep(600)", "asyncio.Event().wait()"][self.below(2) as usize]
    }

    fn statement(&mut self, depth: u32) -> String {
        let seconds = self.seconds();
        if self.calls >= MAX_CALLS {
            return format!("log.append(await asyncio.gather(asyncio.sleep({seconds}, 1), asyncio.sleep(0.001, 2)))");
        }
        let number = self.number();
        let kind = self.below(20);
        let mut expressions = [String::new(), String::new()];
        for expression in &mut expressions[..EXPRESSIONS[kind as usize]] {
            *expression = self.awaitable(depth);
        }
        let [one, two] = expressions;
        match kind {
            0 => format!("log.append(await call({number}))\nlog.append([await {one}, await {two}])"),
            1 => format!("log.append(await asyncio.gather({one}, call({number}), {two}))"),
            2 => format!(
                "results = await asyncio.gather({one}, fail({number}), {two}, return_exceptions=True)\n\
                 log.append([repr(each) for each in results])"
            ),
            3 => format!(
                "async with asyncio.TaskGroup() as group:\n    \
                     tasks = [group.create_task(each) for each in [{one}, call({number}), {two}]]\n\
                 log.append([task.result() for task in tasks])"
            ),
            4 => format!(
                "inner = []\ntry:\n    async with asyncio.TaskGroup() as group:\n        \
                     group.create_task(until_cancelled(inner, {}))\n        group.create_task(fail({number}))\n\
                 except* Failure as errors:\n    log.append([str(error) for error in errors.exceptions])\n\
                 log.append([inner, await {one}])",
                self.endless()
            ),
            5 => format!(
                "try:\n    async with asyncio.timeout(0.003):\n        await {}\n\
                 except TimeoutError:\n    log.append(['timeout', await call({number}), await {one}])",
                self.endless_wait()
            ),
            6 => format!(
                "async with asyncio.timeout(600) as limit:\n    log.append(await call({number}))\n    \
                     limit.reschedule(None)\n    log.append([await {one}, limit.expired()])"
            ),
            7 => format!(
                "try:\n    await asyncio.wait_for({}, {seconds})\n\
                 except TimeoutError:\n    log.append(['wait_for', await asyncio.wait_for(call({number}), 600)])",
                self.endless_wait()
            ),
            8 => format!(
                "inner = []\ntask = asyncio.create_task(until_cancelled(inner, {}))\n\
                 log.append([await call({number}), await {one}])\ntask.cancel('enough')\n\
                 try:\n    await task\nexcept asyncio.CancelledError:\n    log.append([inner, task.cancelled()])",
                self.endless()
            ),
            9 => format!(
                "queue = asyncio.Queue(1)\nasync def produce():\n    for each in range(3):\n        \
                     await queue.put(each)\n    await queue.put(await call({number}))\n    await queue.put(None)\n\
                 producer = asyncio.create_task(produce())\nwhile (item := await queue.get()) is not None:\n    \
                     log.append(item)\n    await asyncio.sleep({seconds})\nawait producer"
            ),
            10 => format!(
                "lock, order = asyncio.{}, []\nasync def hold(name, wait):\n    async with lock:\n        \
                     order.append([name, await wait])\n\
                 await asyncio.gather(hold('a', {one}), hold('b', call({number})), hold('c', {two}))\nlog.append(order)",
                ["Lock()", "Semaphore(1)"][self.below(2) as usize]
            ),
            11 => format!(
                "condition, ready = asyncio.Condition(), []\nasync def consume():\n    async with condition:\n        \
                     await condition.wait_for(lambda: len(ready) == 2)\n        return list(ready)\n\
                 consumer = asyncio.create_task(consume())\nfor each in ['x', await call({number})]:\n    \
                     async with condition:\n        ready.append(each)\n        condition.notify_all()\n    \
                     await asyncio.sleep({seconds})\nlog.append(await consumer)"
            ),
            12 => format!(
                "event, woken = asyncio.Event(), []\nasync def wait(name):\n    await event.wait()\n    woken.append(name)\n\
                 waiters = [asyncio.create_task(wait(name)) for name in 'abc']\nlog.append(await call({number}))\n\
                 asyncio.get_running_loop().call_later({seconds}, event.set)\nawait asyncio.wait(waiters)\nlog.append(woken)"
            ),
            13 => format!(
                "async def count():\n    try:\n        for each in range(5):\n            await asyncio.sleep({seconds})\n            \
                     yield each\n    finally:\n        log.append(['closed', await call({number})])\n\
                 async with aclosing(count()) as numbers:\n    async for each in numbers:\n        log.append(each)\n        \
                     if each == 2:\n            break"
            ),
            14 => format!(
                "event = asyncio.Event()\nasync def later():\n    await event.wait()\n    return await call({number})\n\
                 inner = asyncio.create_task(later())\ntry:\n    await asyncio.wait_for(asyncio.shield(inner), 0.002)\n\
                 except TimeoutError:\n    event.set()\n    log.append([await inner, await {one}])"
            ),
            15 => format!(
                "token = marker.set('inner')\nlog.append([await call({number}), marker.get(), await {one}])\n\
                 marker.reset(token)\nlog.append([rng.random(), marker.get()])"
            ),
            16 => format!(
                "try:\n    try:\n        await fail({number})\n    finally:\n        log.append(['finally', await {one}])\n\
                 except Failure as error:\n    log.append([str(error), await {two}])\nelse:\n    log.append('unreachable')"
            ),
            17 => format!(
                "async def both():\n    results = await asyncio.gather(fail({number}), {one}, return_exceptions=True)\n    \
                     errors = [each for each in results if isinstance(each, Exception)]\n    \
                     raise ExceptionGroup('both', [*errors, KeyError('key')])\n\
                 try:\n    await both()\nexcept* KeyError as errors:\n    log.append(repr(errors.exceptions))\n\
                 except* Failure as errors:\n    log.append([str(errors.exceptions[0]), await {two}])"
            ),
            18 => format!(
                "class Steps:\n    def __init__(self):\n        self.waits = iter([{one}, call({number}), {two}])\n    \
                     def __aiter__(self):\n        return self\n    async def __anext__(self):\n        \
                     for wait in self.waits:\n            return await wait\n        raise StopAsyncIteration\n\
                 log.append([each async for each in Steps()])"
            ),
            _ => format!(
                "@asynccontextmanager\nasync def managed(name):\n    log.append(['enter', name, await {one}])\n    try:\n        \
                     yield name\n    finally:\n        log.append(['exit', name, rng.randrange(100)])\n\
                 async with AsyncExitStack() as stack:\n    await stack.enter_async_context(managed('a'))\n    \
                     stack.push_async_callback(call, {number})\n    await {two}\n    done, pending = await asyncio.wait(\n        \
                     [asyncio.create_task(asyncio.sleep({seconds}, 'first')), asyncio.create_task(asyncio.sleep(600))],\n        \
                     return_when=asyncio.FIRST_COMPLETED)\n    pending.pop().cancel()\n    \
                     log.append([task.result() for task in done])"
            ),
        }
    }
}
