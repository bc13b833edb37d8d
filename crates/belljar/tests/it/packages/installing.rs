//! Installation from code, in each way that a program may try.

use crate::harness::Belljar;
use crate::wheels::Wheels;

fn wheels() -> Wheels {
    Wheels::new()
        .with("alpha", "1.0", &[("alpha/__init__.py", "version = 1"), ("alpha/old.py", "")])
        .with("alpha", "2.0", &[("alpha/__init__.py", "version = 2"), ("alpha/new.py", "")])
        .with("beta", "1.0", &[("beta.py", "name = 'beta'")])
        .with_requirements("gamma", &["beta"], &[("gamma.py", "import beta")])
}

/// Runs code, which must succeed, and returns its output.
fn printed(wheels: &Wheels, code: &str) -> String {
    let run = wheels.run(&[], code);
    assert_eq!(run.status, Some(0), "{code}: {run:?}");
    run.stdout
}

#[test]
fn every_way_to_call_pip_installs() {
    let wheels = wheels();
    let ways = [
        "%pip install gamma",
        "!pip install gamma",
        "%pip install -q 'gamma>=1'  # quietly",
        "!{sys.executable} -m pip install gamma",
        "!uv pip install gamma",
        "if True:\n    %pip install gamma",
        "import micropip\nawait micropip.install('gamma')",
        "import micropip\nawait micropip.install(['gamma', 'beta'])",
        "import subprocess\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'gamma'], check=True)",
        "import subprocess\nsubprocess.check_call([sys.executable, '-m', 'pip', 'install', '-q', 'gamma'])",
        "import subprocess\nprint(subprocess.check_output(['pip', 'install', 'gamma'], text=True))",
        "import subprocess\nsubprocess.run('pip install gamma && pip list', shell=True, check=True)",
        "import subprocess\np = subprocess.Popen(['pip', 'install', 'gamma'], stdout=subprocess.PIPE)\nassert p.wait() == 0",
        "import os\nassert os.system('pip install gamma > /dev/null 2>&1') == 0",
        "import pip\npip.main(['install', 'gamma'])",
        "open('r.txt', 'w').write('# all\\ngamma==1.0\\n')\n%pip install -r r.txt",
    ];
    for way in ways {
        let code = format!("import sys\n{way}\nprint(__import__('gamma').beta.name, 'is there')");
        let out = printed(&wheels, &code);
        assert!(out.ends_with("beta is there\n"), "{way}: {out}");
    }
}

#[test]
fn pip_prints_installed_packages() {
    let out = printed(&wheels(), "%pip install gamma\n%pip install gamma\n!pip list\n!pip freeze\n!pip show gamma");
    for part in [
        "Successfully installed beta-1.0 gamma-1.0\n",
        "Requirement already satisfied: gamma in /lib/python3.",
        "Package Version\n------- -------\nbeta    1.0\ngamma   1.0\n",
        "beta==1.0\ngamma==1.0\n",
        "Name: gamma\nVersion: 1.0\n",
        "Requires: beta\n",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn failed_pip_reports_errors_like_pip() {
    let wheels = wheels();
    let code = "import subprocess, sys
done = subprocess.run([sys.executable, '-m', 'pip', 'install', 'nowhere-to-be-found'], capture_output=True, text=True)
print(done.returncode, done.stdout == '', done.stderr)
try:
    subprocess.check_call(['pip', 'install', 'nowhere-to-be-found'], stderr=subprocess.DEVNULL)
except subprocess.CalledProcessError as error:
    print(error.returncode)
import micropip
try:
    await micropip.install('nowhere-to-be-found')
except ValueError as error:
    print('micropip', error)
!pip install nowhere-to-be-found
print('the cell goes on')";
    let run = wheels.run(&[], code);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.starts_with("1 True ERROR: "), "{run:?}");
    assert!(run.stdout.contains("No matching distribution found for nowhere-to-be-found"), "{run:?}");
    assert!(run.stdout.contains("\n1\nmicropip "), "{run:?}");
    assert!(run.stdout.ends_with("the cell goes on\n"), "{run:?}");
}

#[test]
fn failed_pip_magic_is_an_error_of_the_cell() {
    let wheels = wheels();
    for line in ["%pip install nowhere-to-be-found", "%pip install -q gamma nowhere-to-be-found", "%pip -U nowhere"] {
        let run = wheels.run(&[], &format!("print('before')\n{line}\nprint('after')"));
        assert_eq!((run.status, run.stdout.as_str()), (Some(1), "before\n"), "{line}: {run:?}");
        assert!(run.stderr.contains("pip.PipError: ") && !run.stderr.contains("_belljar"), "{line}: {run:?}");
    }
    let denied = wheels.run(&["--deny-packages", "beta"], "%pip install gamma");
    assert!(denied.status == Some(1) && denied.stderr.contains(" is not allowed: "), "{denied:?}");
    let mixed = wheels.run(&[], "!pip install gamma && ls\nprint('on')");
    assert!(mixed.status == Some(0) && mixed.stderr.contains("can call nothing else here"), "{mixed:?}");
}

#[test]
fn another_version_replaces_the_first() {
    let code = "import alpha
print(alpha.version)
%pip install 'alpha<2'
import alpha, os
print(alpha.version, sorted(name for name in os.listdir(os.path.dirname(alpha.__file__)) if name.endswith('.py')))
%pip install alpha
print(__import__('importlib.metadata').metadata.version('alpha'))
%pip install -U alpha
import alpha
print(alpha.version)";
    let out = printed(&wheels(), code);
    let lines: Vec<&str> = out.lines().filter(|line| !line.starts_with(['S', 'R'])).collect();
    assert_eq!(lines, ["2", "1 ['__init__.py', 'old.py']", "1.0", "2"], "{out}");
}

#[test]
fn code_cannot_choose_index_url_or_path() {
    let wheels = wheels();
    for command in [
        "pip install alpha --index-url http://192.0.2.1/simple",
        "pip install --extra-index-url=http://192.0.2.1/simple alpha",
        "pip install -f /tmp alpha",
        "pip install 'alpha @ http://192.0.2.1/alpha-1.0-py3-none-any.whl'",
        "pip install http://192.0.2.1/alpha-1.0-py3-none-any.whl",
        "pip install ./alpha",
        "pip install /tmp/alpha-1.0-py3-none-any.whl",
        "pip install git+https://192.0.2.1/alpha",
        "pip install -e .",
        "pip install --target /tmp alpha",
    ] {
        let code = format!("import os\nprint(os.system({command:?}) >> 8)");
        let run = wheels.run(&["--timeout", "120"], &code);
        assert!(run.stdout == "1\n" && run.stderr.starts_with("ERROR: "), "{command}: {run:?}");
    }
}

#[test]
fn denied_packages_cannot_be_installed_from_code() {
    let wheels = wheels();
    let code = "import os\nprint(os.system('pip install gamma') >> 8)";
    for options in [["--deny-packages", "beta"], ["--allow-packages", "alpha"]] {
        let run = wheels.run(&options, code);
        assert!(run.stdout == "1\n" && run.stderr.contains(" is not allowed: "), "{options:?}: {run:?}");
    }
    let run = wheels.run(&["--no-install"], code);
    assert!(run.stdout == "1\n" && run.stderr.contains("installing is disabled"), "{run:?}");
}

#[test]
fn installation_time_is_not_code_time() {
    // An index that accepts the connection and never replies.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let index = format!("http://{}/simple", listener.local_addr().unwrap());
    let code = "import os, time\nbegin = time.monotonic()\nstatus = os.system('pip install alpha')\n\
                print(status >> 8, time.monotonic() - begin > 10)";
    let options = ["run", "--timeout", "10", "--install-timeout", "12", "--index-url", &index, "-c", code];
    let run = Belljar::new().args(options).run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "1 True\n"), "{run:?}");
    assert!(run.stderr.contains("installing took longer than 12 s"), "{run:?}");
}

#[test]
fn other_processes_and_magics_are_refused_as_before() {
    let run = wheels()
        .run(&[], "import subprocess\ntry:\n    subprocess.run(['git'])\nexcept OSError as error:\n    print(error)");
    assert!(run.stdout.contains("cannot start processes"), "{run:?}");
    for code in ["%who", "!ls", "x = '''\n%pip install alpha\n'''\n%who"] {
        let run = wheels().run(&[], code);
        assert!(run.status == Some(1) && run.stderr.contains("SyntaxError"), "{code}: {run:?}");
    }
    let run = wheels().run(&[], "x = '''\n%pip install alpha\n'''\nprint(x)\n%pip list");
    assert!(run.stdout.starts_with("\n%pip install alpha\n\n"), "{run:?}");
}

#[test]
fn magics_that_programs_begin_with_work() {
    let code = "%%time\n%matplotlib inline\n%time x = 6\nif x:\n    %time print('in')\n%time x * 7";
    let run = Belljar::new().args(["run", "-p", "-c", code]).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    let times = run.stdout.lines().filter(|line| line.starts_with("Wall time: ")).count();
    let others: Vec<&str> = run.stdout.lines().filter(|line| !line.starts_with("Wall time: ")).collect();
    assert_eq!((times, others), (4, vec!["in", "42"]), "{run:?}");
}

#[test]
fn timeit_measures_a_line_or_a_cell() {
    for (code, runs) in [
        ("x = range(9)\n%timeit -n 2 -r 3 sum(x)", "3 runs, 2 loops each"),
        ("if True:\n    %timeit -n1 -r1 max([1, 2])", "1 run, 1 loop each"),
        ("%%timeit -n 5 -r 2 x = 6\ny = x * 7\nassert y == 42", "2 runs, 5 loops each"),
        ("%timeit -r 2 pass", "2 runs, 10"),
    ] {
        let run = Belljar::new().args(["run", "-c", code]).run();
        assert_eq!(run.status, Some(0), "{code}: {run:?}");
        assert!(run.stdout.contains(" per loop (mean ± std. dev. of ") && run.stdout.contains(runs), "{code}: {run:?}");
    }
    let failed = Belljar::run_with(["-c", "%timeit -n 1 1 / 0"]);
    assert!(failed.status == Some(1) && failed.stderr.contains("ZeroDivisionError"), "{failed:?}");
}

#[test]
fn capture_keeps_the_output_of_a_cell() {
    let code = "%%capture\nimport sys\nprint('out')\nprint('err', file=sys.stderr)\n42";
    let run = Belljar::run_with(["-p", "-c", code]);
    assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""), "{run:?}");
    let only_errors = Belljar::run_with([
        "-c",
        "%%capture --no-stdout\nimport sys\nprint('out', file=sys.stdout)\nprint('err', file=sys.stderr)",
    ]);
    assert_eq!((only_errors.stdout.as_str(), only_errors.stderr.as_str()), ("out\n", ""), "{only_errors:?}");
    // The name has the text, also in the cell itself.
    let named = Belljar::run_with(["-c", "%%capture text\nprint('out')\nassert text.stdout == str(text) == 'out\\n'"]);
    assert_eq!((named.status, named.stdout.as_str()), (Some(0), ""), "{named:?}");
    let failed = Belljar::run_with(["-c", "%%capture\nprint('out')\n1 / 0"]);
    assert_eq!((failed.status, failed.stdout.as_str()), (Some(1), ""), "{failed:?}");
    assert!(failed.stderr.contains("line 3") && failed.stderr.contains("ZeroDivisionError"), "{failed:?}");
}

#[test]
fn time_zones_say_why_they_are_missing() {
    let code = "import zoneinfo\nzoneinfo.ZoneInfo('Europe/Berlin')";
    let run = Belljar::new().args(["run", "--no-install", "-c", code]).run();
    let reason = "time zones are in the package tzdata, which is not installed (";
    assert!(run.stderr.contains(reason) && run.stderr.contains("installing is disabled"), "{run:?}");
}

#[test]
fn lines_keep_their_numbers_under_magics() {
    let run = wheels().run(&[], "%pip install -q beta\nimport beta\n1 / 0");
    assert!(run.stderr.contains("line 3") && run.stderr.contains("1 / 0"), "{run:?}");
}
