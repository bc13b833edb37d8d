//! Resolution of paths to inodes, component by component, as specified by POSIX.
//!
//! `..` means the parent of the directory that was reached, not the path without its last component. The loop keeps the
//! remainder of the path and puts the targets of symbolic links in front of it; it does not recurse.

use std::sync::Arc;

use super::node::{NodeId, NodeKind, ROOT};
use super::{AT_FDCWD, Filesystem, NAME_MAX, PATH_MAX};
use crate::Errno;

/// The maximum number of symbolic links followed in one resolution, as on Linux and in Emscripten.
const MAX_LINKS: u32 = 40;

/// A file that a path can lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathTarget {
    /// An inode of this filesystem.
    Node(NodeId),
    /// A file in a mounted host directory, by its path from that directory's root, which is "". Every component but the
    /// last was a directory and not a link when it was resolved.
    Host { mount: u32, path: String },
}

/// The last component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FinalComponent {
    Name(String),
    Root,
    Dot,
    DotDot,
}

/// The result of resolving a path.
#[derive(Debug, Clone)]
pub(super) struct ResolvedPath {
    /// The directory that contains, or would contain, the last component.
    pub(super) parent: PathTarget,
    pub(super) last: FinalComponent,
    pub(super) found: Option<PathTarget>,
    /// Set if the path ends in a slash and so can only denote a directory.
    pub(super) slash: bool,
}

/// The part of a path that is still to be resolved.
struct RemainingPath {
    /// The segments in reverse order.
    segments: Vec<Segment>,
}

struct Segment {
    text: Arc<str>,
    /// The start of the next component, which always exists.
    at: usize,
    /// Set if this is the target of a link in a mounted host directory.
    of_host: bool,
}

impl RemainingPath {
    /// Puts `text` in front of the remainder.
    fn push(&mut self, text: Arc<str>, of_host: bool) {
        let at = text.len() - text.trim_start_matches('/').len();
        if at < text.len() {
            self.segments.push(Segment { text, at, of_host });
        }
    }

    /// Returns the next component, and whether it comes from a link in a host directory.
    fn next(&mut self) -> Option<(String, bool)> {
        let segment = self.segments.last_mut()?;
        let rest = segment.text.get(segment.at..).unwrap_or_default();
        let (name, behind) = rest.split_once('/').unwrap_or((rest, ""));
        let next = (name.to_owned(), segment.of_host);
        // Slashes are skipped here, so that the remainder never consists of slashes alone.
        segment.at = segment.text.len() - behind.trim_start_matches('/').len();
        if segment.at == segment.text.len() {
            self.segments.pop();
        }
        Some(next)
    }

    fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

impl Filesystem {
    /// Returns the directory where resolution of a path starts.
    pub(super) fn base(&self, dirfd: i32, path: &str) -> Result<PathTarget, Errno> {
        if path.starts_with('/') {
            return Ok(PathTarget::Node(ROOT));
        }
        if dirfd == AT_FDCWD {
            return Ok(self.working_directory.clone());
        }
        self.place_of(dirfd)
    }

    /// Resolves `path` from `base`. A symbolic link in the last component is followed if `follow` is set.
    ///
    /// All components but the last must exist.
    pub(super) fn locate(&mut self, base: PathTarget, path: &str, follow: bool) -> Result<ResolvedPath, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let absolute = path.starts_with('/');
        let mut current = if absolute { PathTarget::Node(ROOT) } else { base };
        let mut last = if absolute { FinalComponent::Root } else { FinalComponent::Dot };
        let mut slash = path.ends_with('/');
        let mut links = 0;
        let mut remaining = RemainingPath { segments: Vec::new() };
        remaining.push(path.into(), false);
        while let Some((name, of_host)) = remaining.next() {
            self.check_searchable(&current)?;
            match name.as_str() {
                "." => last = FinalComponent::Dot,
                ".." => {
                    current = self.parent_of(&current, of_host)?;
                    last = FinalComponent::DotDot;
                }
                name if name.len() > NAME_MAX => return Err(Errno::ENAMETOOLONG),
                name => {
                    let at_end = remaining.is_empty();
                    let Some(found) = self.look_up(&current, name)? else {
                        if at_end {
                            return Ok(ResolvedPath {
                                parent: current,
                                last: FinalComponent::Name(name.into()),
                                found: None,
                                slash,
                            });
                        }
                        return Err(Errno::ENOENT);
                    };
                    let target = if !at_end || follow { self.link_target(&found)? } else { None };
                    if let Some(target) = target {
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(Errno::ELOOP);
                        }
                        slash |= at_end && target.ends_with('/');
                        let of_host = matches!(found, PathTarget::Host { .. });
                        if target.starts_with('/') {
                            // An absolute path of the host has no meaning here, and must not be taken for one of the
                            // guest's.
                            if of_host {
                                return Err(Errno::EACCES);
                            }
                            current = PathTarget::Node(ROOT);
                            last = FinalComponent::Root;
                        }
                        remaining.push(target, of_host);
                        continue;
                    }
                    if at_end {
                        let last = FinalComponent::Name(name.into());
                        return Ok(ResolvedPath { parent: current, last, found: Some(found), slash });
                    }
                    current = found;
                }
            }
        }
        Ok(ResolvedPath { parent: current.clone(), last, found: Some(current), slash })
    }

    /// Returns the file at `path`. Fails with [`Errno::ENOENT`] if it does not exist.
    pub(super) fn resolve(&mut self, dirfd: i32, path: &str, follow: bool) -> Result<PathTarget, Errno> {
        let base = self.base(dirfd, path)?;
        // If the path ends in a slash, even `lstat` follows the link.
        let resolved = self.locate(base, path, follow || path.ends_with('/'))?;
        let place = resolved.found.ok_or(Errno::ENOENT)?;
        if resolved.slash && !self.is_directory(&place)? {
            return Err(Errno::ENOTDIR);
        }
        Ok(place)
    }

    pub(super) fn is_directory(&mut self, place: &PathTarget) -> Result<bool, Errno> {
        match place {
            PathTarget::Node(id) => Ok(matches!(self.nodes.get(*id)?.kind, NodeKind::Directory(_))),
            PathTarget::Host { mount, path } => Ok(self.mounted(*mount)?.is_directory(path)?),
        }
    }

    fn check_searchable(&mut self, place: &PathTarget) -> Result<(), Errno> {
        match place {
            PathTarget::Node(id) => {
                self.nodes.directory(*id)?;
                self.check_mode(*id, 0o111)
            }
            PathTarget::Host { .. } if self.is_directory(place)? => Ok(()),
            PathTarget::Host { .. } => Err(Errno::ENOTDIR),
        }
    }

    fn parent_of(&mut self, place: &PathTarget, of_host: bool) -> Result<PathTarget, Errno> {
        match place {
            PathTarget::Node(id) => {
                let node = self.nodes.get(*id)?;
                if node.linked { Ok(PathTarget::Node(node.parent)) } else { Err(Errno::ENOENT) }
            }
            // A link of the host that leads out of the mounted directory.
            PathTarget::Host { path, .. } if path.is_empty() && of_host => Err(Errno::EACCES),
            PathTarget::Host { mount, path } if path.is_empty() => {
                let at = self.mounts.get(*mount as usize).ok_or(Errno::EIO)?.at;
                self.parent_of(&PathTarget::Node(at), false)
            }
            PathTarget::Host { mount, path } => {
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                Ok(PathTarget::Host { mount: *mount, path: parent.into() })
            }
        }
    }

    fn look_up(&mut self, directory: &PathTarget, name: &str) -> Result<Option<PathTarget>, Errno> {
        match directory {
            PathTarget::Node(id) => {
                let Some(child) = self.child(*id, name)? else { return Ok(None) };
                let mount = match &self.nodes.get(child)?.kind {
                    NodeKind::Directory(directory) => directory.mount,
                    _ => None,
                };
                Ok(Some(match mount {
                    Some(mount) => PathTarget::Host { mount, path: String::new() },
                    None => PathTarget::Node(child),
                }))
            }
            PathTarget::Host { mount, path } => {
                let path = join(path, name);
                let exists = self.mounted(*mount)?.exists(&path)?;
                Ok(exists.then_some(PathTarget::Host { mount: *mount, path }))
            }
        }
    }

    /// Returns the target of a symbolic link; `None` for other files.
    fn link_target(&mut self, place: &PathTarget) -> Result<Option<Arc<str>>, Errno> {
        match place {
            PathTarget::Node(id) => match &self.nodes.get(*id)?.kind {
                NodeKind::Link(target) => Ok(Some(target.clone())),
                _ => Ok(None),
            },
            PathTarget::Host { mount, path } => self.mounted(*mount)?.link_target(path),
        }
    }

    /// Fails if none of `bits` is set in the inode's mode.
    pub(super) fn check_mode(&self, id: NodeId, bits: u32) -> Result<(), Errno> {
        if self.enforcing && self.nodes.get(id)?.mode & bits == 0 { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// Returns the path of a directory from the root. Fails with [`Errno::ENOENT`] if it was removed, and with
    /// [`Errno::ENAMETOOLONG`] if the path has more than `limit` bytes.
    pub(super) fn path_of(&self, place: &PathTarget, limit: usize) -> Result<String, Errno> {
        let (mut id, below) = match place {
            PathTarget::Node(id) => (*id, None),
            PathTarget::Host { mount, path } => {
                let at = self.mounts.get(*mount as usize).ok_or(Errno::EIO)?.at;
                (at, Some(path.as_str()).filter(|path| !path.is_empty()))
            }
        };
        let mut names: Vec<&str> = below.into_iter().collect();
        let mut length: usize = names.iter().map(|name| name.len() + 1).sum();
        while id != ROOT {
            let node = self.nodes.get(id)?;
            if !node.linked {
                return Err(Errno::ENOENT);
            }
            length += node.name.len() + 1;
            if length > limit {
                return Err(Errno::ENAMETOOLONG);
            }
            names.push(&node.name);
            id = node.parent;
        }
        names.reverse();
        Ok(format!("/{}", names.join("/")))
    }
}

/// Appends `name` to the path of a host directory.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}
