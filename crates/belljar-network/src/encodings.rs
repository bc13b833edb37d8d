//! The forms in which a server may send a secret back: base64, hexadecimal, percent-encoded and escaped text.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

/// The shortest form that is looked for. Shorter ones would be found in text that has nothing to do with the secret.
const MIN_FORM: usize = 6;

/// Returns the forms of a secret, each once. The first is the secret.
pub(crate) fn forms(secret: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![secret.as_bytes().to_vec()];
    let mut add = |form: Vec<u8>| {
        if form.len() >= MIN_FORM && !forms.contains(&form) {
            forms.push(form);
        }
    };
    for engine in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD] {
        add(engine.encode(secret).into_bytes());
    }
    for before in 0..3 {
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let mut bytes = vec![0; before];
            bytes.extend_from_slice(secret.as_bytes());
            let encoded = engine.encode(&bytes).into_bytes();
            // The characters that hold no bits of the text before and after the secret.
            let start = (before * 8).div_ceil(6);
            let end = bytes.len() * 8 / 6;
            add(encoded.get(start..end).unwrap_or_default().to_vec());
            // The same at the end of the text, where the last character is certain.
            add(encoded.get(start..).unwrap_or_default().to_vec());
        }
    }
    add(hex::encode(secret).into_bytes());
    add(hex::encode_upper(secret).into_bytes());
    for unreserved in ["-_.~", "-_.~/", "-_.~!'()*", "-_.", "-_.*", "-_.~:/?#[]@!$&'()*+,;=", ""] {
        for upper in [true, false] {
            add(percent_encoded(secret, unreserved, upper, false));
            add(percent_encoded(secret, unreserved, upper, true));
        }
    }
    for form in escaped(secret) {
        add(form.into_bytes());
    }
    forms
}

fn percent_encoded(secret: &str, unreserved: &str, upper: bool, plus: bool) -> Vec<u8> {
    let mut encoded = String::with_capacity(secret.len() * 3);
    for byte in secret.bytes() {
        let c = char::from(byte);
        if byte.is_ascii_alphanumeric() || unreserved.contains(c) && byte.is_ascii() {
            encoded.push(c);
        } else if plus && byte == b' ' {
            encoded.push('+');
        } else if upper {
            encoded.push_str(&format!("%{byte:02X}"));
        } else {
            encoded.push_str(&format!("%{byte:02x}"));
        }
    }
    encoded.into_bytes()
}

/// Returns the secret as the content of texts of JSON, Python and HTML.
fn escaped(secret: &str) -> Vec<String> {
    let json = json_content(secret);
    let ascii: String = json.chars().map(|c| if c.is_ascii() { c.to_string() } else { unicode_escape(c) }).collect();
    let repr = secret.replace('\\', "\\\\");
    let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    vec![
        json.replace('/', "\\/"),
        ascii.replace('/', "\\/"),
        ascii.to_uppercase().replace("\\U", "\\u"),
        json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"),
        // The arguments of tools are JSON in a text of JSON.
        json_content(&json),
        json_content(&ascii),
        json,
        ascii,
        repr.replace('\'', "\\'"),
        repr,
        html.replace('"', "&quot;").replace('\'', "&#x27;"),
        html.replace('"', "&#34;").replace('\'', "&#39;"),
        html.replace('"', "&quot;").replace('\'', "&#39;"),
        html.replace('"', "&quot;"),
        html,
    ]
}

/// Returns a text as it is between the quotes of JSON.
fn json_content(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap_or_default();
    json.get(1..json.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

fn unicode_escape(c: char) -> String {
    let mut units = [0; 2];
    c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}
