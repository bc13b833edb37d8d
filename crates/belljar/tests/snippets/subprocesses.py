# %% A directory is listed
import os, subprocess
os.makedirs("folder", exist_ok=True)
open("folder/a.txt", "w").write("ay\n")
open("folder/b.txt", "w").close()
result = subprocess.run(["ls", "folder"], capture_output=True, text=True)
print(result.returncode, result.stdout.split(), repr(result.stderr))
#> 0 ['a.txt', 'b.txt'] ''
# %% check_output
import subprocess
open("text.txt", "w").write("one\ntwo\n")
print(subprocess.check_output(["cat", "text.txt"]))
print(subprocess.check_output("cat text.txt", shell=True, text=True).splitlines())
print(subprocess.getoutput("echo hello"))
#> b'one\ntwo\n'
#> ['one', 'two']
#> hello
# %% A script of the program
import subprocess, sys
open("child.py", "w").write("import sys\nprint('child', sys.argv[1:], __name__)\nsys.exit(3)\n")
result = subprocess.run([sys.executable, "child.py", "one", "two"], capture_output=True, text=True)
print(result.returncode, result.stdout)
#> 3 child ['one', 'two'] __main__
#>
# %% Code of the program
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout.strip())
print(subprocess.check_output(["python3", "-c", "import sys; print(sys.argv[1])", "argument"], text=True).strip())
#> 42
#> argument
# %% Standard input
import subprocess, sys
code = "import sys; print(sys.stdin.read().upper(), end='')"
print(subprocess.run([sys.executable, "-c", code], input="text\n", capture_output=True, text=True).stdout)
print(subprocess.run(["cat"], input=b"bytes", stdout=subprocess.PIPE).stdout)
code = "name = input('Name? '); print('Hi', name)"
print(subprocess.run([sys.executable, "-c", code], input="Ada\n", capture_output=True, text=True).stdout)
#> TEXT
#>
#> b'bytes'
#> Name? Hi Ada
#>
# %% Popen and communicate
import subprocess, sys
code = "import sys\nfor line in sys.stdin: print(int(line) * 2)\nprint('end', file=sys.stderr)"
process = subprocess.Popen(
    [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
)
print(process.communicate("1\n2\n"), process.returncode, process.poll())
#> ('2\n4\n', 'end\n') 0 0
# %% Writing to a program and reading from it
import subprocess
with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
    process.stdin.write(b"written")
    process.stdin.close()
    print(process.stdout.read(), process.wait())
#> b'written' 0
# %% The lines of a program
import subprocess, sys
code = "for n in range(3): print('line', n, flush=True)"
with subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, text=True) as process:
    for line in process.stdout:
        print("got", line.strip())
print(process.returncode)
#> got line 0
#> got line 1
#> got line 2
#> 0
# %% A failure is raised by check
import subprocess, sys
try:
    subprocess.run([sys.executable, "-c", "1 / 0"], check=True, capture_output=True, text=True)
except subprocess.CalledProcessError as error:
    print(error.returncode, error.stderr.splitlines()[-1])
#> 1 ZeroDivisionError: division by zero
# %% Standard error
import subprocess, sys
code = "import sys; print('out'); print('err', file=sys.stderr)"
merged = subprocess.run([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(merged.stdout.split())
silent = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(silent.returncode, silent.stdout)
#> ['out', 'err']
#> 0 None
# %% Output into a file, input from a file
import subprocess
with open("output.txt", "w") as file:
    subprocess.run(["echo", "to the file"], stdout=file)
with open("output.txt") as file:
    print(subprocess.run(["cat"], stdin=file, capture_output=True, text=True).stdout)
#> to the file
#>
# %% Inherited output keeps its order
import subprocess, sys
print("before", flush=True)
subprocess.run([sys.executable, "-c", "print('inside')"])
print("after", flush=True)
#> before
#> inside
#> after
# %% The directory and the environment are the program's own
import os, subprocess, sys
os.makedirs("elsewhere", exist_ok=True)
before = os.getcwd()
code = "import os; print(os.path.basename(os.getcwd()), os.environ.get('MODE'), os.environ.get('SECRET'))"
os.environ["SECRET"] = "parent"
print(subprocess.run(
    [sys.executable, "-c", code], cwd="elsewhere", env={"MODE": "test"}, capture_output=True, text=True
).stdout.strip())
print(os.getcwd() == before, os.environ["SECRET"], "MODE" in os.environ)
#> elsewhere test None
#> True parent False
# %% Variables and modules of a script stay its own
import subprocess, sys
value = "parent"
open("helper_module.py", "w").write("value = 1\n")
code = "import helper_module; value = 'child'; print(helper_module.value)"
subprocess.run([sys.executable, "-c", code])
open("helper_module.py", "w").write("value = 22\n")
subprocess.run([sys.executable, "-c", code])
print(value, "helper_module" in sys.modules)
#> 1
#> 22
#> parent False
# %% A module
import subprocess, sys
result = subprocess.run([sys.executable, "-m", "json.tool", "--compact"], input='{"a": [1, 2]}', capture_output=True, text=True)
print(result.returncode, result.stdout)
#> 0 {"a":[1,2]}
#>
# %% os.system and os.popen
import os
print(os.system("echo from the shell && true"), os.system("false") >> 8)
print(os.popen("echo popen").read())
#> from the shell
#> 0 1
#> popen
#>
# %% A script that fails to exist
import subprocess, sys
result = subprocess.run([sys.executable, "missing.py"], capture_output=True, text=True)
print(result.returncode, "can't open file" in result.stderr, "missing.py" in result.stderr)
#> 2 True True
# %% A shell's script
import subprocess
print(subprocess.run(["bash", "-c", "echo one; echo two"], capture_output=True, text=True).stdout.split())
print(subprocess.run("cd / && pwd", shell=True, capture_output=True, text=True).stdout)
#> ['one', 'two']
#> /
#>
# %% A test runner
import subprocess, sys
open("test_sums.py", "w").write("import unittest\nclass Sums(unittest.TestCase):\n    def test(self): self.assertEqual(1 + 1, 2)\n")
result = subprocess.run([sys.executable, "-m", "unittest", "test_sums"], capture_output=True, text=True)
print(result.returncode, result.stderr.splitlines()[-1])
#> 0 OK
# %% A script with threads
import subprocess, sys
code = "import threading\nthreading.Thread(target=print, args=('threaded',)).start()"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
#> threaded
#>
# %% The version
import subprocess, sys
version = subprocess.run([sys.executable, "--version"], capture_output=True, text=True).stdout
print(version.startswith("Python 3."))
#> True
