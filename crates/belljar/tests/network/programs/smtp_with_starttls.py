"""smtplib: a mail after STARTTLS and a login."""

import smtplib
import ssl
from email.message import EmailMessage

message = EmailMessage()
message["Subject"], message["From"], message["To"] = "Report", "me@example.com", "you@example.com"
message.set_content("The figures are attached.")
with smtplib.SMTP("api.example.com", PORT_smtp, timeout=120) as server:
    server.ehlo()
    assert not server.has_extn("auth")
    server.starttls(context=ssl.create_default_context())
    server.ehlo()
    assert server.has_extn("auth") and server.sock.version().startswith("TLSv1.")
    server.login("user", "password")
    assert server.send_message(message) == {}
