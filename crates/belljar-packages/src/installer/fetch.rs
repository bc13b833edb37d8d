//! Fetching the files of a resolution into the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use belljar_cache::{Entry, EntryKey, NewEntry};
use belljar_core::Progress;
use belljar_core::progress::{ProgressStep, StepProgress, Unit};
use futures::FutureExt;
use parking_lot::Mutex;

use super::{Installer, remaining};
use crate::error::InstallError;
use crate::resolution::{PinnedFile, Resolution};
use crate::wheel::Wheel;

/// The maximum number of files that are fetched at the same time.
const MAX_PARALLEL_DOWNLOADS: usize = 8;

impl Installer {
    /// Fetches the files of a resolution that are not in the cache, several at the same time.
    pub(super) fn fetch_until(
        &self,
        resolution: &Resolution,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<Vec<Wheel>, InstallError> {
        let mut wheels: Vec<Option<Wheel>> = Vec::new();
        let mut missing = Vec::new();
        for (index, pinned) in resolution.pinned().iter().enumerate() {
            let entry = self.settings.cache.get(&wheel_key(pinned))?;
            if entry.is_none() {
                missing.push((index, pinned));
            }
            wheels.push(entry.map(|entry| self.wheel(pinned, &entry)).transpose()?);
        }
        let results = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..missing.len().min(MAX_PARALLEL_DOWNLOADS) {
                scope.spawn(|| {
                    while let Some((index, pinned)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let outcome = self.fetch_one(pinned, progress, deadline);
                        // After a failure the remaining files are of no use.
                        if outcome.is_err() {
                            next.store(missing.len(), Ordering::Relaxed);
                        }
                        results.lock().push((*index, outcome));
                    }
                });
            }
        });
        for (index, outcome) in results.into_inner() {
            wheels[index] = Some(outcome?);
        }
        Ok(wheels.into_iter().flatten().collect())
    }

    fn fetch_one(
        &self,
        pinned: &PinnedFile,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<Wheel, InstallError> {
        let entry = self.settings.cache.get_or_create(&wheel_key(pinned), progress, |new: &NewEntry| {
            let doing = format!("downloading {}", pinned.filename);
            let step: Arc<Box<dyn StepProgress>> = Arc::new(progress.start(match pinned.size {
                Some(size) => ProgressStep::bytes(doing.clone(), size),
                None => ProgressStep { unit: Unit::Bytes, ..ProgressStep::indeterminate(doing.clone()) },
            }));
            let path = new.path().join(&pinned.filename);
            let (download_step, pinned) = (Arc::clone(&step), pinned.clone());
            self.worker.run(&doing, remaining(deadline), move |engine| {
                async move { engine.download(&pinned, &path, &|bytes| download_step.advance(bytes)).await }
                    .boxed_local()
            })?;
            if let Some(step) = Arc::into_inner(step) {
                step.finish();
            }
            Ok::<_, InstallError>(())
        })?;
        self.wheel(pinned, &entry)
    }

    fn wheel(&self, pinned: &PinnedFile, entry: &Entry) -> Result<Wheel, InstallError> {
        Ok(Wheel {
            name: pinned.name.clone(),
            version: pinned.version.clone(),
            filename: pinned.filename.clone(),
            sha256: pinned.sha256.clone(),
            kind: pinned.kind,
            path: entry.file(&pinned.filename)?,
            platform: self.platform.clone(),
        })
    }
}

/// Returns the key of a file in the cache.
pub(super) fn wheel_key(pinned: &PinnedFile) -> EntryKey {
    EntryKey::new("wheel").part("sha256", &pinned.sha256).part("file", &pinned.filename)
}
