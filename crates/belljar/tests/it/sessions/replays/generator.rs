//! Draws Python programs without `await` that wait in many ways from a seed.
//!
//! A program that is run again is the same only if everything that it receives is the same: its logs contain random
//! numbers, orders of sets, times of files and the results of waits. Calls of the tool `get` reply with their number.

use super::super::durable_programs::generator::Random;

/// The number of waits after which a program has no further ones.
const MAX_WAITS: u32 = 6;
/// The depth of statements in statements.
const MAX_DEPTH: u32 = 2;

/// The beginning of each program. `check` is an error in a program that was run again and did not receive the same.
const PRELUDE: &str = "\
import asyncio, contextlib, hashlib, os, queue, random, tempfile, threading, time, uuid
from concurrent.futures import ThreadPoolExecutor
from tools import t
log, seen = [], []
class Failure(Exception): pass
def line(value):
    # Of one size, whatever the value is.
    return hashlib.sha256(repr(value).encode()).hexdigest() + '\\n'
class Thing:
    def __init__(self, name): self.name = name
    def __del__(self): log.append(['deleted', self.name])
def note(value):
    seen.append(value)
    with open('seen.txt', 'a') as file:
        file.write(line(value))
def check():
    with open('seen.txt') as file:
        assert file.read() == ''.join(map(line, seen))
    assert os.stat('seen.txt').st_mtime <= time.time()
async def call(number):
    return await t.get(value=number)
@contextlib.contextmanager
def managed(name):
    log.append(['enter', name])
    try:
        yield name
    finally:
        log.append(['exit', name])
note(random.random())
";

/// Draws the program of a seed.
pub(super) fn program(seed: u64) -> String {
    let mut random = Random::new(seed);
    let is_async = random.below(4) == 0;
    let mut generator = Generator { random, is_async, waits: 0, names: 0 };
    let mut code = PRELUDE.to_owned();
    let count = 3 + generator.below(3);
    for _ in 0..count {
        code.push_str(&generator.statement(0));
        code.push_str(&format!("print({}, log)\n", generator.below(100)));
    }
    if generator.waits == 0 {
        code.push_str(&generator.ask());
    }
    if is_async {
        // A task of the cell waits without a thread.
        code.push_str(&format!("log.append(await call({}))\n", generator.wait()));
        code.push_str(&generator.ask());
    }
    code.push_str("check()\n");
    code.push_str(match generator.below(6) {
        0 => "raise Failure(log)",
        1 => "raise ExceptionGroup('several', [Failure(len(log)), ValueError(len(seen))])",
        _ => "(log, len(seen), sorted(os.listdir('.')))",
    });
    code
}

struct Generator {
    random: Random,
    /// True if the program is a task, in which no other loop can run.
    is_async: bool,
    waits: u32,
    names: u32,
}

impl Generator {
    fn below(&mut self, limit: u32) -> u32 {
        self.random.below(limit)
    }

    fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    /// Returns the number of a new wait.
    fn wait(&mut self) -> u32 {
        self.waits += 1;
        self.waits - 1
    }

    /// Returns a statement that asks something.
    fn ask(&mut self) -> String {
        let number = self.wait();
        match self.below(3) {
            0 => format!("log.append(input('line {number}'))\n"),
            1 => format!("log.append([{number}, t.get(value={number}).result()])\n"),
            _ if self.is_async => format!("log.append([t.get(value={number}).result()])\n"),
            _ => format!("log.append(asyncio.run(call({number})))\n"),
        }
    }

    /// Returns a statement that receives something else.
    fn draw(&mut self) -> String {
        let number = self.name();
        match self.below(9) {
            0 => "note(random.random())\n".into(),
            1 => "note(uuid.uuid4().hex)\n".into(),
            2 => "note(os.urandom(5))\n".into(),
            3 => "note((time.time(), time.monotonic(), time.process_time()))\n".into(),
            4 => "time.sleep(0.003)\nnote(time.perf_counter())\n".into(),
            5 => "log.append(sorted({str(each) for each in range(9)}))\nnote(list({str(each) for each in seen}))\n"
                .into(),
            6 => format!(
                "with tempfile.TemporaryDirectory() as folder{number}:\n    note(folder{number})\n\
                 \x20   note(os.stat(folder{number}).st_mtime_ns)\n"
            ),
            7 => format!(
                "with open('file{number}.txt', 'w') as file{number}:\n    file{number}.write(str(len(seen)))\n\
                 note(os.stat('file{number}.txt').st_mtime_ns)\n"
            ),
            _ => format!("thing{number} = Thing({number})\nnote(id(thing{number}))\n"),
        }
    }

    /// Returns statements, indented for the body of another one.
    fn body(&mut self, depth: u32) -> String {
        let statements: String = (0..1 + self.below(2)).map(|_| self.statement(depth + 1)).collect();
        statements.lines().map(|line| format!("    {line}\n")).collect()
    }

    fn statement(&mut self, depth: u32) -> String {
        if self.waits >= MAX_WAITS {
            return self.draw();
        }
        if depth >= MAX_DEPTH {
            return if self.below(2) == 0 { self.ask() } else { self.draw() };
        }
        let number = self.name();
        match self.below(11) {
            0 | 1 => self.ask(),
            2 | 3 => self.draw(),
            4 => format!("def f{number}():\n{}    return len(log)\nlog.append(f{number}())\n", self.body(depth)),
            5 => format!("with managed({number}):\n{}", self.body(depth)),
            6 => format!(
                "try:\n{}    raise Failure({number})\nexcept Failure as error:\n    log.append(repr(error))\n\
                 finally:\n{}",
                self.body(depth),
                self.body(depth)
            ),
            7 => format!(
                "def g{number}():\n    yield len(log)\n{}    yield len(log)\nlog.append(list(g{number}()))\n",
                self.body(depth)
            ),
            8 => format!(
                "def f{number}():\n{}thread{number} = threading.Thread(target=f{number})\nthread{number}.start()\n\
                 thread{number}.join()\n",
                self.body(depth)
            ),
            9 => {
                let (one, two) = (self.wait(), self.wait());
                format!(
                    "with ThreadPoolExecutor(2) as pool{number}:\n    log.append(list(pool{number}.map(\
                     lambda n: t.get(value=n).result(), [{one}, {two}])))\n"
                )
            }
            _ => format!("for at in range({}):\n{}", 1 + self.below(2), self.body(depth)),
        }
    }
}
