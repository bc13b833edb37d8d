//! The journal of the calls that a run sends while its snapshot is on the disk, one signed line for each.

use std::fs::File;
use std::io::{self, Write as _};

use super::StoreError;
use super::signer::Signer;
use crate::runs::RunId;

/// The maximum size of a journal, in bytes.
pub(super) const MAX_SENT: u64 = 16 << 20;

/// The calls that were sent since a run was saved, and whether each may be sent again without harm.
pub(crate) type SentCalls = Vec<(u64, bool)>;

/// The journal of the calls that a run sends while its snapshot is on the disk.
#[derive(Debug, Default)]
pub(crate) struct RunJournal(pub(super) Option<(File, Signer, RunId)>);

impl RunJournal {
    /// Records a call, unless the run is not saved. Returns whether it is.
    pub(crate) fn append(&self, call: u64, is_repeatable: bool) -> io::Result<bool> {
        let Some((file, signer, run)) = &self.0 else { return Ok(false) };
        let line = sent_line(run, call, is_repeatable);
        let mut file = file;
        file.write_all(format!("{line} {}\n", hex(&signer.sign(line.as_bytes()))).as_bytes())?;
        Ok(true)
    }

    /// Ends the journal: the run goes on, or is put to sleep, and opens another one when it is saved or woken.
    pub(crate) fn close(&mut self) {
        self.0 = None;
    }
}

fn sent_line(run: &RunId, call: u64, is_repeatable: bool) -> String {
    format!("{} {call} {}", run.as_str(), u8::from(is_repeatable))
}

/// Parses the calls that were sent.
pub(super) fn parse_sent(text: &str, run: &RunId, signer: &Signer) -> Result<SentCalls, StoreError> {
    let invalid = || StoreError::Damaged("the record of its calls is invalid");
    let mut sent = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(owner), Some(call), Some(flag), Some(signature)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(invalid());
        };
        // The server ended before it deleted the record of an earlier run.
        if owner != run.as_str() {
            continue;
        }
        let call: u64 = call.parse().map_err(|_| invalid())?;
        let is_repeatable = flag == "1";
        let signature: Option<Vec<u8>> = signature
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let signed = sent_line(run, call, is_repeatable);
        if !signature.is_some_and(|signature| signer.is_valid(signed.as_bytes(), &signature)) {
            return Err(invalid());
        }
        sent.push((call, is_repeatable));
    }
    Ok(sent)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
