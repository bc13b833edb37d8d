//! Saved sessions whose bytes were changed: they are refused, or restored as instances that work within their limits.

use belljar_emscripten::snapshot;
use belljar_emscripten::{InstanceConfig, Snapshot, SnapshotDelta, WorkingSet};

use crate::guest::{Guest, module, on_guest_thread};

const BODY: &str = r#"
  (global (export "counter") (mut i32) (i32.const 0))
  (func (export "count") (result i32)
    (i32.store (i32.const 4096) (i32.add (i32.load (i32.const 4096)) (i32.const 1)))
    (i32.load (i32.const 4096)))"#;

/// Changes to a byte: the lowest bit, a bit that is set in lengths of several bytes, and all bits.
const CHANGES: [u8; 3] = [0x01, 0x80, 0xff];

#[test]
fn damaged_deltas_never_cause_a_panic() {
    on_guest_thread(|| {
        let mut guest = Guest::start(&module("", BODY), &["count", "counter"], &[]);
        let layers = [guest.layer.clone()];
        let layers = layers.as_slice();
        let file = snapshot::anonymous_file().unwrap();
        guest.instance.snapshot(&file, vec![], WorkingSet::default()).unwrap();
        let program = guest.instance.program().clone();
        let base = Snapshot::open(file, &program, layers).unwrap();
        let mut changed = program.restore(&base, InstanceConfig::isolated()).unwrap();
        assert_eq!(changed.call::<_, i32>("count", ()).unwrap(), 1);
        changed.host_mut().files.write_file("/home/d/f", b"contents").unwrap();
        let bytes = changed.delta(&base).unwrap().to_bytes().unwrap();

        // Returns the next count, or `None` if the bytes are refused.
        let restored = |bytes: &[u8]| -> Option<i32> {
            let delta = SnapshotDelta::from_bytes(bytes).ok()?;
            let restored = program.restore_with_delta(&base, &delta, layers, InstanceConfig::isolated());
            restored.ok().map(|mut instance| instance.call::<_, i32>("count", ()).unwrap_or_default())
        };
        assert_eq!(restored(&bytes), Some(2));
        let (mut accepted, mut refused) = (0, 0);
        let mut check = |bytes: &[u8]| match restored(bytes) {
            Some(_) => accepted += 1,
            None => refused += 1,
        };
        for at in 0..bytes.len() {
            for change in CHANGES {
                let mut bytes = bytes.clone();
                bytes[at] ^= change;
                check(&bytes);
            }
            check(&bytes[..at]);
        }
        check(&[bytes.as_slice(), &[0]].concat());
        // Most bytes of the masks and words may have any value.
        assert!(refused > bytes.len() && accepted > 0, "{accepted} were accepted, {refused} refused");
    });
}
