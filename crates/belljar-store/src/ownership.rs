//! The ownership of a session: reading its parts, and commits.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::{Mutex, MutexGuard};

use crate::content::{Changes, Content, Facts, Piece};
use crate::deadline::Deadline;
use crate::driver::{self, OperationEnd, Versioned};
use crate::error::{CommitError, StoreError};
use crate::names::{self, Digest, SessionKey};
use crate::objects::MAX_PARALLEL;
use crate::protocol::{Intent, Outcome};
use crate::replica::Replica;

/// The number of unused blobs that are deleted together.
const GARBAGE_BATCH: usize = 16;
/// The maximum size of a piece that is remembered, since it is likely to move, and that of all.
const MAX_REMEMBERED: (usize, usize) = (64 << 10, 1 << 20);

/// The right of this replica to execute a session, and to commit its state.
///
/// Dropping it gives nothing up: the session stays with this replica, which may activate it again. Its operations are
/// carried out one after another.
pub struct Ownership {
    replica: Replica,
    key: SessionKey,
    held: Box<Mutex<State>>,
}

struct State {
    held: Versioned,
    /// False once the session has another owner, or may have, or none.
    is_owned: bool,
    /// Blobs that no record refers to.
    garbage: Vec<String>,
    remembered: BTreeMap<Piece, Bytes>,
}

impl Ownership {
    pub(crate) fn new(replica: Replica, key: SessionKey, held: Versioned) -> Self {
        let state = State { held, is_owned: true, garbage: Vec::new(), remembered: BTreeMap::new() };
        Self { replica, key, held: Box::new(Mutex::new(state)) }
    }

    /// Returns the name of the session in the store.
    #[must_use]
    pub fn key(&self) -> SessionKey {
        self.key
    }

    /// Returns the fencing epoch: the number of activations of the session.
    pub async fn epoch(&self) -> u64 {
        self.held.lock().await.held.record.epoch
    }

    /// Returns the number of commits of the session.
    pub async fn sequence(&self) -> u64 {
        self.held.lock().await.held.record.sequence
    }

    /// Returns the facts of the last commit.
    pub async fn facts(&self) -> Facts {
        self.held.lock().await.held.record.payload.facts.clone()
    }

    /// Returns the names and sizes of the parts.
    pub async fn parts(&self) -> BTreeMap<String, u64> {
        let state = self.held.lock().await;
        let size = |pieces: &Vec<Piece>| pieces.iter().map(|piece| piece.length).sum();
        state.held.record.payload.parts.iter().map(|(name, pieces)| (name.clone(), size(pieces))).collect()
    }

    /// Returns whether this replica may own the session still. A commit finds out for certain.
    pub async fn is_owned(&self) -> bool {
        self.held.lock().await.is_owned && self.replica.check().is_ok()
    }

    /// Reads a part. Returns `None` if the session does not have it.
    ///
    /// # Errors
    /// When the store does not answer, or a piece of the part is missing or damaged.
    pub async fn read(&self, part: &str) -> Result<Option<Bytes>, StoreError> {
        let pieces = self.held.lock().await.held.record.payload.parts.get(part).cloned();
        let Some(pieces) = pieces else { return Ok(None) };
        let found = self.read_pieces(pieces.clone(), None).await?;
        Ok(Some(join(&pieces, &found)))
    }

    /// Reads all parts, with as few requests as possible.
    ///
    /// # Errors
    /// When the store does not answer, or a piece is missing or damaged.
    pub async fn read_all(&self) -> Result<BTreeMap<String, Bytes>, StoreError> {
        let parts = self.held.lock().await.held.record.payload.parts.clone();
        let found = self.read_pieces(parts.values().flatten().cloned().collect(), None).await?;
        Ok(parts.iter().map(|(name, pieces)| (name.clone(), join(pieces, &found))).collect())
    }

    /// Reads pieces. Neighbours in a blob are read by one request. Without a deadline, each request has its own.
    async fn read_pieces(
        &self,
        mut pieces: Vec<Piece>,
        deadline: Option<Deadline>,
    ) -> Result<BTreeMap<Piece, Bytes>, StoreError> {
        pieces.sort_unstable();
        let mut runs: Vec<Vec<Piece>> = Vec::new();
        for piece in pieces {
            match runs.last_mut().and_then(|run| run.last().cloned().map(|last| (run, last))) {
                Some((run, last)) if last.blob == piece.blob && last.offset + last.length == piece.offset => {
                    run.push(piece);
                }
                _ => runs.push(vec![piece]),
            }
        }
        let folder = names::state(&self.key);
        let objects = &self.replica.shared.cluster.objects;
        let reads = runs.into_iter().map(|run| {
            let folder = &folder;
            async move {
                let size: u64 = run.iter().map(|piece| piece.length).sum();
                let (Some(first), Ok(length)) = (run.first(), usize::try_from(size)) else { return Ok(Vec::new()) };
                let name = format!("{folder}{}", first.blob);
                let range = first.offset..first.offset + size;
                let deadline = deadline.unwrap_or_else(|| Deadline::for_size(length));
                let bytes = objects.get_range(&name, range, deadline).await?;
                let start = first.offset;
                run.into_iter().map(|piece| verify(&name, &bytes, start, piece)).collect::<Result<Vec<_>, _>>()
            }
        });
        let found: Vec<Vec<(Piece, Bytes)>> = stream::iter(reads).buffer_unordered(MAX_PARALLEL).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Stores changes: one write of what changed, and one of the record, which is the commit point and confirms the
    /// ownership. Returns the number of commits. The changes are stored exactly once if this returns `Ok`.
    ///
    /// # Errors
    /// See [`CommitError`]. After all but [`CommitError::NotStored`] the session is not owned any more.
    pub async fn commit(&self, changes: Changes) -> Result<u64, CommitError> {
        self.store(changes, false).await
    }

    /// Gives the session up, after storing changes: any replica may activate it then. Without changes this is one
    /// write.
    ///
    /// # Errors
    /// See [`CommitError`].
    pub async fn release(&self, changes: Option<Changes>) -> Result<(), CommitError> {
        if let Some(changes) = changes {
            return self.store(changes, true).await.map(drop);
        }
        let mut state = self.begin().await?;
        let intent = Intent::Release { held: state.held.record.clone() };
        self.write_record(&mut state, intent, Deadline::for_commit(0)).await?;
        state.is_owned = false;
        self.delete_garbage(&mut state);
        Ok(())
    }

    /// Deletes the session.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn delete(&self) -> Result<crate::Deletion, StoreError> {
        let mut state = self.held.lock().await;
        state.is_owned = false;
        self.replica.delete(self.key).await
    }

    async fn begin(&self) -> Result<MutexGuard<'_, State>, CommitError> {
        let state = self.held.lock().await;
        self.replica.check().map_err(CommitError::Fenced)?;
        if state.is_owned { Ok(state) } else { Err(CommitError::Lost) }
    }

    async fn store(&self, changes: Changes, release: bool) -> Result<u64, CommitError> {
        let mut state = self.begin().await?;
        let record = state.held.record.clone();
        let write = names::new_write().map_err(CommitError::NotStored)?;
        let blob = names::blob(record.epoch, record.sequence + 1, write);
        let pieces = record.payload.pieces_to_move(&changes);
        let moved_size = pieces.iter().map(|piece| usize::try_from(piece.length).unwrap_or(usize::MAX));
        let size = moved_size.fold(changes.size(), usize::saturating_add);
        // One for all requests: a client waits for the answer.
        let deadline = Deadline::for_commit(size);
        let moved = self.moved_pieces(&state, pieces, deadline).await.map_err(CommitError::NotStored)?;
        let (payload, bytes, unused) = record.payload.apply(changes, &blob, &moved).map_err(CommitError::NotStored)?;
        let folder = names::state(&self.key);
        if !bytes.is_empty() {
            let objects = &self.replica.shared.cluster.objects;
            objects.put(&format!("{folder}{blob}"), bytes.clone(), deadline).await.map_err(CommitError::NotStored)?;
        }
        self.replica.check().map_err(CommitError::Fenced)?;
        let remembered = remember(&payload, &blob, &bytes, &state.remembered);
        let intent = Intent::Commit { held: record, payload, release };
        self.write_record(&mut state, intent, deadline).await?;
        state.garbage.extend(unused.into_iter().map(|blob| format!("{folder}{blob}")));
        state.remembered = remembered;
        if release {
            state.is_owned = false;
        }
        if release || state.garbage.len() >= GARBAGE_BATCH {
            self.delete_garbage(&mut state);
        }
        Ok(state.held.record.sequence)
    }

    async fn write_record(
        &self,
        state: &mut State,
        intent: Intent<Content>,
        deadline: Deadline,
    ) -> Result<(), CommitError> {
        let known = (state.held.record.write, state.held.version.clone());
        // If this future is dropped from here on, it is unknown whether the record was written.
        state.is_owned = false;
        let shared = &self.replica.shared;
        let end = driver::run(shared, &self.key, intent, Some(known), deadline).await;
        match end {
            Ok(OperationEnd { outcome: Outcome::Done(record), version: Some(version), .. }) => {
                state.held = Versioned { record, version };
                state.is_owned = true;
                Ok(())
            }
            // The state was stored, and the session continues elsewhere.
            Ok(OperationEnd { outcome: Outcome::DoneAndLost, .. }) => {
                state.held.record.sequence += 1;
                Ok(())
            }
            Ok(OperationEnd { outcome: Outcome::Failed, error, .. }) => match error {
                Some(error @ StoreError::Fenced { .. }) => Err(CommitError::Fenced(error)),
                error => {
                    state.is_owned = true;
                    let error = error.unwrap_or_else(|| StoreError::unavailable("write the record", "no answer"));
                    Err(CommitError::NotStored(error))
                }
            },
            Ok(OperationEnd { outcome: Outcome::Lost, .. }) => Err(CommitError::Lost),
            Ok(_) | Err(_) => Err(CommitError::Unknown),
        }
    }

    async fn moved_pieces(
        &self,
        state: &State,
        pieces: Vec<Piece>,
        deadline: Deadline,
    ) -> Result<BTreeMap<Piece, Bytes>, StoreError> {
        let (mut moved, mut missing) = (BTreeMap::new(), Vec::new());
        for piece in pieces {
            match state.remembered.get(&piece) {
                Some(bytes) => drop(moved.insert(piece, bytes.clone())),
                None => missing.push(piece),
            }
        }
        moved.extend(self.read_pieces(missing, Some(deadline)).await?);
        Ok(moved)
    }

    /// Deletes blobs in the background that no record refers to. The collection deletes the rest.
    fn delete_garbage(&self, state: &mut State) {
        let names = std::mem::take(&mut state.garbage);
        if names.is_empty() {
            return;
        }
        let objects = self.replica.shared.cluster.objects.clone();
        tokio::spawn(async move {
            if let Err(error) = objects.delete_all(names).await {
                tracing::debug!(%error, "failed to delete unused objects");
            }
        });
    }
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ownership").field("session", &self.key).finish_non_exhaustive()
    }
}

fn verify(name: &str, bytes: &Bytes, start: u64, piece: Piece) -> Result<(Piece, Bytes), StoreError> {
    let offset = usize::try_from(piece.offset - start).unwrap_or(usize::MAX);
    let end = usize::try_from(piece.length).unwrap_or(usize::MAX).saturating_add(offset);
    if end > bytes.len() {
        return Err(StoreError::damaged(name, "it is too short"));
    }
    let found = bytes.slice(offset..end);
    if Digest::from_content(&found) != piece.digest {
        return Err(StoreError::damaged(name, "its SHA-256 is another"));
    }
    Ok((piece, found))
}

fn join(pieces: &[Piece], found: &BTreeMap<Piece, Bytes>) -> Bytes {
    match pieces {
        [piece] => found.get(piece).cloned().unwrap_or_default(),
        pieces => pieces.iter().filter_map(|piece| found.get(piece)).flatten().copied().collect::<Vec<u8>>().into(),
    }
}

/// Returns the small pieces of a content that are at hand: of the new blob, and of those remembered before.
fn remember(content: &Content, blob: &str, bytes: &Bytes, before: &BTreeMap<Piece, Bytes>) -> BTreeMap<Piece, Bytes> {
    let mut total = 0;
    let mut remembered = BTreeMap::new();
    for piece in content.parts.values().flatten() {
        let length = usize::try_from(piece.length).unwrap_or(usize::MAX);
        if length > MAX_REMEMBERED.0 || total + length > MAX_REMEMBERED.1 {
            continue;
        }
        let found = match before.get(piece) {
            Some(bytes) => bytes.clone(),
            None if piece.blob == blob => {
                let start = usize::try_from(piece.offset).unwrap_or(0);
                // Not a slice, which would hold the whole blob in memory.
                Bytes::copy_from_slice(&bytes[start..start + length])
            }
            None => continue,
        };
        total += length;
        remembered.insert(piece.clone(), found);
    }
    remembered
}
