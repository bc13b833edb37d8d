//! Values that modules read while they are imported: they differ from run to run, although images contain imports.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{Belljar, Run};
use crate::wheels::Wheels;
use crate::wire::{Wire, text};

/// Runs code three times, and returns the output of each run.
fn three_runs(mut run: impl FnMut() -> Run) -> Vec<String> {
    let run = |()| {
        let run = run();
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        run.stdout
    };
    [(); 3].map(run).to_vec()
}

/// Checks that no line of the output of a run is that of another run.
fn assert_different(outputs: &[String], what: &str) {
    let lines: Vec<Vec<&str>> = outputs.iter().map(|output| output.lines().collect()).collect();
    for (number, line) in lines[0].iter().enumerate() {
        let values: BTreeSet<&str> = lines.iter().map(|lines| lines[number]).collect();
        assert_eq!(values.len(), lines.len(), "{what}, line {number}: {line}");
    }
}

/// A package whose modules draw at import, each in another way.
const DRAWS: &[(&str, &str)] = &[
    ("frozen/__init__.py", ""),
    ("frozen/token.py", "import secrets\nvalue = secrets.token_hex(8)"),
    ("frozen/bytes.py", "import os\nvalue = os.urandom(8).hex()"),
    ("frozen/device.py", "value = open('/dev/urandom', 'rb').read(8).hex()"),
    ("frozen/identifier.py", "import uuid\nvalue = str(uuid.uuid4())"),
    ("frozen/generator.py", "import random\nrng = random.Random()\ndef draw(): return rng.random()"),
    ("frozen/shared.py", "import random\nvalue = random.random()"),
    ("frozen/name.py", "import tempfile\nvalue = tempfile.mktemp()"),
    ("frozen/time.py", "import time\nvalue = time.time_ns()"),
    ("frozen/date.py", "import datetime\nvalue = str(datetime.datetime.now())"),
    ("frozen/holder.py", "from .token import value as token\nclass Client:\n    name = f'client-{token}'"),
    ("frozen/later.py", "def __getattr__(name):\n    from . import bytes\n    return bytes.value\n__all__ = ['value']"),
];

/// Code that prints one value of each module of [`DRAWS`].
const PRINT: &str = "
import frozen.token, frozen.bytes, frozen.device, frozen.identifier, frozen.generator, frozen.shared, frozen.name
import frozen.time, frozen.date, frozen.holder, frozen.later
print(frozen.token.value, frozen.bytes.value, frozen.device.value, frozen.identifier.value, sep='\\n')
print(frozen.generator.draw(), frozen.shared.value, frozen.name.value, sep='\\n')
print(frozen.time.value, frozen.date.value, frozen.holder.Client.name, frozen.later.value, sep='\\n')
";

#[test]
fn value_drawn_at_import_differs_in_each_run() {
    let wheels = Wheels::new().with("frozen", "1.0", DRAWS);
    let outputs = three_runs(|| wheels.run(&["-q"], PRINT));
    assert_eq!(outputs[0].lines().count(), 11, "{outputs:?}");
    assert_different(&outputs, "runs");
    // Named modules are no exception.
    let outputs = three_runs(|| wheels.run(&["-q", "--preload", "frozen.token,frozen.holder"], PRINT));
    assert_different(&outputs, "runs with --preload");
}

#[test]
fn calls_and_sessions_of_one_server_draw_different_values() {
    let wheels = Wheels::new().with("frozen", "1.0", DRAWS);
    let mut wire = Wire::start(["--toolset", "all", "--offline", "--find-links", wheels.path()]);
    let code = "import frozen.holder, frozen.generator\n(frozen.holder.Client.name, frozen.generator.draw())";
    let mut values: Vec<String> = [(); 3].map(|()| wire.run(code)).to_vec();
    values.extend([(); 2].map(|()| {
        let answer = text(&wire.tool("execute_code", json!({ "code": code })));
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["result"].as_str().unwrap_or_else(|| panic!("{answer:#}")).to_owned()
    }));
    assert!(values.iter().all(|value| value.contains("client-")), "{values:?}");
    assert_eq!(values.iter().collect::<BTreeSet<_>>().len(), 5, "{values:?}");
}

#[test]
fn module_that_draws_is_left_out_alone() {
    let wheels = Wheels::new().with("frozen", "1.0", DRAWS).with("quiet", "1.0", &[("quiet.py", "import decimal")]);
    let code = "import sys
loaded = [name in sys.modules for name in ('quiet', 'frozen', 'frozen.token', 'frozen.holder')]
import quiet, frozen, frozen.holder
print(loaded)";
    assert_eq!(wheels.run(&["-q"], code).stdout, "[True, True, False, False]\n");
}

#[test]
fn warmup_names_the_module_that_draws() {
    let wheels = Wheels::new().with("frozen", "1.0", DRAWS);
    let arguments = ["warmup", "--quiet", "--find-links", wheels.path(), "--preload", "frozen.holder"];
    let run = Belljar::new().env("UV_NO_INDEX", "1").args(arguments).run();
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains("`frozen.token` reads random numbers"), "{run:?}");
}

/// Expressions on modules that are in images, and whose state is renewed in each copy.
const RENEWED: &[(&str, &str)] = &[
    ("random", "random.random(), random.getrandbits(64)"),
    ("random", "random.Random().random()"),
    ("secrets", "secrets.token_hex(), secrets.SystemRandom().random()"),
    ("tempfile", "tempfile.mktemp(), tempfile.gettempprefix()"),
    ("uuid", "uuid.uuid1(), uuid.uuid4(), uuid.uuid7()"),
    ("uuid", "uuid.getnode()"),
    ("multiprocessing.process", "multiprocessing.process.current_process().authkey"),
    ("email.utils", "email.utils.make_msgid()"),
    ("logging", "logging._startTime, logging.makeLogRecord({}).relativeCreated"),
    ("sqlite3", "sqlite3.connect(':memory:').execute('select random()').fetchall()"),
];

#[test]
fn renewed_state_differs_in_each_run() {
    let modules: BTreeSet<&str> = RENEWED.iter().map(|(module, _)| *module).collect();
    let preload = modules.iter().copied().collect::<Vec<_>>().join(",");
    let wheels = Wheels::new();
    let left_out = format!("import sys\nprint([name for name in '{preload}'.split(',') if name not in sys.modules])");
    assert_eq!(wheels.run(&["--preload", &preload], &left_out).stdout, "[]\n");
    let prints = RENEWED.iter().map(|(module, value)| format!("import {module}\nprint({value})\n"));
    let code: String = prints.collect();
    let outputs = three_runs(|| wheels.run(&["-q", "--preload", &preload], &code));
    assert_eq!(outputs[0].lines().count(), RENEWED.len(), "{outputs:?}");
    assert_different(&outputs, "runs");
}

/// Modules of the standard library that packages import, apart from those of the base image.
const STANDARD_LIBRARY: &str = "argparse,asyncio,bz2,calendar,cmd,code,concurrent.futures,configparser,ctypes,difflib,\
                                email.message,email.policy,fileinput,getpass,gettext,glob,gzip,hmac,html.parser,\
                                http.client,http.cookiejar,http.server,imaplib,ipaddress,locale,mailbox,mimetypes,\
                                multiprocessing,optparse,pdb,pickle,platform,plistlib,queue,sched,secrets,shelve,shlex,\
                                smtplib,socketserver,sqlite3,symtable,tarfile,threading,timeit,tomllib,trace,\
                                unittest.mock,urllib.request,wave,xml.dom.minidom,xmlrpc.client,zipfile,zoneinfo";

#[test]
fn standard_library_stays_in_images() {
    let code =
        format!("import sys; print([name for name in '{STANDARD_LIBRARY}'.split(',') if name not in sys.modules])");
    assert_eq!(Wheels::new().run(&["--preload", STANDARD_LIBRARY], &code).stdout, "[]\n");
}

/// Well-known packages whose import reads random numbers, and which are in images nevertheless.
#[test]
fn well_known_packages_stay_in_images() {
    let code = "import sys
loaded = [name in sys.modules for name in ('dateutil.parser', 'faker', 'pydantic', 'sympy')]
import dateutil.parser, faker, pydantic, sympy, time
print(loaded, dateutil.parser.DEFAULTPARSER.info._year == time.localtime().tm_year, faker.Faker().sha256(), end=' ')
print(sympy.core.random.rng.random(), pydantic.TypeAdapter(int).validate_python('7'))";
    let outputs = three_runs(|| Belljar::run_with(["-q", "-c", code]));
    assert!(outputs.iter().all(|output| output.starts_with("[True, True, True, True] True ")), "{outputs:?}");
    assert_different(&outputs, "runs");
}

#[test]
fn dependencies_of_a_module_that_draws_stay_in_images() {
    let heavy = [("heavy/__init__.py", "from . import part"), ("heavy/part.py", ""), ("heavy/lazy.py", "")];
    let draws = "import heavy.lazy\nfrom . import before\nimport secrets\nvalue = secrets.token_hex(8)\nimport wave";
    let program = [("program/__init__.py", draws), ("program/before.py", "")];
    let wheels = Wheels::new().with("heavy", "1.0", &heavy).with_requirements("program", &["heavy"], &program);
    let code = "import sys
names = 'heavy', 'heavy.part', 'heavy.lazy', 'program', 'program.before', 'wave'
print([name in sys.modules for name in names])
import program
print(program.value)";
    let outputs = three_runs(|| wheels.run(&["-q"], code));
    let (loaded, values): (Vec<&str>, Vec<String>) =
        outputs.iter().map(|output| output.split_once('\n').unwrap()).map(|(one, two)| (one, two.to_owned())).unzip();
    assert_eq!(loaded[0], "[True, True, True, False, False, False]", "{outputs:?}");
    assert_different(&values, "runs");
}
