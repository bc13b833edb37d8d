"""Jupyter's own tests of kernels, on the kernel `belljar`."""

import unittest

import jupyter_kernel_test as jkt

# Seconds in which a message must arrive, on a busy machine too. The suite waits for some for a tenth of a second.
PATIENCE = 180
jkt.TIMEOUT = PATIENCE


class BelljarTests(jkt.KernelTests):
    kernel_name = "belljar"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [
        {"text": "zi", "matches": {"zip"}},
        {"text": "x = 1\nprin", "matches": {"print"}},
    ]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n", "%who"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2", "if True:"]
    invalid_code_samples = ["import = 7q", "1 +* 2"]
    code_page_something = "zip?"
    code_generate_error = "raise ValueError('wrong')"
    code_execute_result = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data = [
        {"code": "from IPython.display import HTML, display\ndisplay(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": "display({'image/svg+xml': '<svg/>'}, raw=True)", "mime": "image/svg+xml"},
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output\nclear_output()"

    def get_non_kernel_info_reply(self, timeout=None):
        return super().get_non_kernel_info_reply(timeout=PATIENCE)

    def execute_helper(self, code, **options):
        channel = self.kc.iopub_channel
        get_msg = channel.get_msg

        def patient_get_msg(timeout=None):
            while True:
                message = get_msg(timeout=PATIENCE)
                # Those of an earlier request of another kind may be late.
                if message["parent_header"].get("msg_type") == "execute_request":
                    return message

        channel.get_msg = patient_get_msg
        try:
            return super().execute_helper(code, **options)
        finally:
            del channel.get_msg


class WelcomeTests(jkt.IopubWelcomeTests):
    kernel_name = "belljar"
    support_iopub_welcome = True


if __name__ == "__main__":
    unittest.main(verbosity=2)
