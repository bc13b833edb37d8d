//! Translates exceptions from the legacy instructions (`try`, `catch`, `delegate`, `rethrow`), with which Emscripten's
//! libraries are built, to the standard ones (`try_table`, `throw_ref`), the only ones that wasmtime runs.
//!
//! A legacy handler is a part of its `try`; a standard one is a block that `try_table` branches out to. Each handler
//! therefore becomes the code behind the end of its own block, and the blocks are nested with the first handler
//! innermost:
//!
//! ```text
//! try $t (P → R)              block $t (P → R)
//!                               block $h1 (P → …)
//!                                 block $h0 (P → a's values)
//!                                   try_table (P → R) (catch $a $h0) (catch_all $h1)
//!   body                              body
//!                                   end
//!                                   br $t
//! catch $a                        end
//!   handler 0                     handler 0
//!                                 br $t
//! catch_all                     end
//!   handler 1                   handler 1
//! end                         end
//! ```
//!
//! - `rethrow` names a `try` whose handler contains it. It needs the exception as a value: the clauses of such a `try`
//!   are `catch_ref` and `catch_all_ref`, each handler begins by storing the reference in a local that belongs to the
//!   `try`, and `rethrow` becomes `local.get`, `throw_ref`. One local suffices, since the handlers of a `try` exclude
//!   each other and none contains its own `try`.
//! - `delegate` passes exceptions of its body to an outer `try`, past those between. If no other `try` is between them,
//!   the inner `try` has no effect and becomes a plain block. Otherwise the outer `try` opens, just inside its own
//!   `try_table`, a *relay*: a block to which the inner one sends the exception and which throws it again:
//!
//! ```text
//! try_table (outer's clauses)
//!   block $relay (→ exnref)
//!     …  try_table (catch_all_ref $relay)  delegated body  end  …
//!     br (out of the outer try_table)
//!   end
//!   throw_ref
//! end
//! ```
//!
//! `delegate` to the caller is the same with a relay around the function's whole body.
//!
//! Branches keep their targets: their depths are recomputed, since there are more blocks to leave. A function that has
//! neither exceptions nor other constructs to rewrite is copied byte by byte.

use std::borrow::Cow;

use wasm_encoder::reencode::Reencode;
use wasm_encoder::{Catch, Instruction, RefType, ValType};
use wasmparser::{FunctionBody, Operator};

use super::TranslateError;
use super::body::{Body, Frame, FrameKind};
use super::types::{Signature, val_types};

/// The type of an exception held as a value.
pub(super) const EXNREF: ValType = ValType::Ref(RefType::EXNREF);

/// The result of a first pass over a body, before any of it is written.
#[derive(Debug, Default)]
pub(super) struct ExceptionAnalysis {
    /// The body's `try`s, in the order in which they begin.
    pub(super) tries: Vec<Try>,
    /// Set if a `delegate` reaches the caller past a `try`.
    pub(super) relay_to_caller: bool,
    /// Set if the body contains a loop or a tail call, which can run forever without deepening the stack.
    pub(super) can_run_forever: bool,
    /// Set if the body contains a tail call.
    pub(super) tail_calls: bool,
    /// Set if the body assigns to a global, such as the stack pointer.
    pub(super) sets_globals: bool,
}

/// One `try`.
#[derive(Debug, Default)]
pub(super) struct Try {
    /// The tag of each handler, `None` for `catch_all`.
    handlers: Vec<Option<u32>>,
    /// Set if a `rethrow` names it.
    pub(super) rethrown: bool,
    /// The target of its `delegate`, if it ends in one.
    delegate: Option<DelegateTarget>,
    /// Set if another `try` delegates to it past a third.
    relay: bool,
}

/// The target of a `delegate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DelegateTarget {
    /// The `try` that receives the exceptions anyway.
    Nearest,
    /// The `try` with this number.
    Try(usize),
    /// The caller of the function.
    Caller,
}

/// A construct that is open during the first pass.
#[derive(Clone, Copy)]
struct OpenConstruct {
    kind: OpenKind,
    /// The innermost `try` whose body contains the construct, which receives exceptions thrown here.
    guard: Option<usize>,
}

#[derive(Clone, Copy)]
enum OpenKind {
    Plain,
    TryBody(usize),
    Handler(usize),
}

/// Opens a construct inside the open ones.
fn push(open: &mut Vec<OpenConstruct>, kind: OpenKind) {
    let guard = match kind {
        OpenKind::TryBody(id) => Some(id),
        OpenKind::Plain | OpenKind::Handler(_) => open.last().and_then(|around| around.guard),
    };
    open.push(OpenConstruct { kind, guard });
}

impl ExceptionAnalysis {
    /// Analyses a function's body. `function` is its index.
    pub(super) fn new(function: u32, body: &FunctionBody<'_>) -> Result<Self, TranslateError> {
        const UNBALANCED: TranslateError = TranslateError::Structure("unbalanced blocks");
        let refuse = |instruction, reason| Err(TranslateError::Instruction { function, instruction, reason });
        let mut exceptions = Self::default();
        let mut open = vec![];
        push(&mut open, OpenKind::Plain);
        let mut try_table = false;
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            match operators.read()? {
                Operator::Block { .. } | Operator::If { .. } => push(&mut open, OpenKind::Plain),
                Operator::Loop { .. } => {
                    exceptions.can_run_forever = true;
                    push(&mut open, OpenKind::Plain);
                }
                Operator::TryTable { .. } => {
                    try_table = true;
                    push(&mut open, OpenKind::Plain);
                }
                Operator::Try { .. } => {
                    push(&mut open, OpenKind::TryBody(exceptions.tries.len()));
                    exceptions.tries.push(Try::default());
                }
                Operator::Catch { tag_index } => exceptions.add_handler(&mut open, Some(tag_index))?,
                Operator::CatchAll => exceptions.add_handler(&mut open, None)?,
                Operator::Rethrow { relative_depth } => {
                    let Some(OpenConstruct { kind: OpenKind::Handler(id), .. }) = nth_from_end(&open, relative_depth)
                    else {
                        return Err(TranslateError::Structure("rethrow outside of a handler"));
                    };
                    exceptions.get_mut(*id)?.rethrown = true;
                }
                Operator::Delegate { relative_depth } => {
                    let Some(OpenConstruct { kind: OpenKind::TryBody(id), .. }) = open.pop() else {
                        return Err(UNBALANCED);
                    };
                    exceptions.delegate(&open, id, relative_depth)?;
                }
                Operator::End => {
                    open.pop().ok_or(UNBALANCED)?;
                }
                Operator::GlobalSet { .. } => exceptions.sets_globals = true,
                Operator::ReturnCall { .. } | Operator::ReturnCallIndirect { .. } => {
                    exceptions.can_run_forever = true;
                    exceptions.tail_calls = true;
                }
                Operator::MemoryInit { .. } => {
                    return refuse("memory.init", "data segments are removed from the module");
                }
                Operator::DataDrop { .. } => return refuse("data.drop", "data segments are removed from the module"),
                Operator::BrOnNull { .. }
                | Operator::BrOnNonNull { .. }
                | Operator::BrOnCast { .. }
                | Operator::BrOnCastFail { .. } => return refuse("br_on_…", "Emscripten emits no such branches"),
                _ => {}
            }
        }
        if try_table && !exceptions.tries.is_empty() {
            return refuse("try_table", "the function has legacy exceptions too");
        }
        Ok(exceptions)
    }

    fn add_handler(&mut self, open: &mut Vec<OpenConstruct>, tag: Option<u32>) -> Result<(), TranslateError> {
        let Some(OpenConstruct { kind: OpenKind::TryBody(id) | OpenKind::Handler(id), .. }) = open.pop() else {
            return Err(TranslateError::Structure("catch outside of a try"));
        };
        self.get_mut(id)?.handlers.push(tag);
        push(open, OpenKind::Handler(id));
        Ok(())
    }

    /// Records the target of the `delegate` of the `try` with number `id`. `open` are the constructs around it.
    fn delegate(&mut self, open: &[OpenConstruct], id: usize, relative_depth: u32) -> Result<(), TranslateError> {
        // The label may belong to any construct; only the `try` that guards it matters.
        const BEYOND: TranslateError = TranslateError::Structure("delegate beyond the function");
        let wanted = nth_from_end(open, relative_depth).ok_or(BEYOND)?.guard;
        let target = if wanted == open.last().ok_or(BEYOND)?.guard {
            DelegateTarget::Nearest
        } else if let Some(outer) = wanted {
            self.get_mut(outer)?.relay = true;
            DelegateTarget::Try(outer)
        } else {
            self.relay_to_caller = true;
            DelegateTarget::Caller
        };
        self.get_mut(id)?.delegate = Some(target);
        Ok(())
    }

    pub(super) fn get(&self, id: usize) -> Result<&Try, TranslateError> {
        self.tries.get(id).ok_or(TranslateError::Structure("try without its analysis"))
    }

    fn get_mut(&mut self, id: usize) -> Result<&mut Try, TranslateError> {
        self.tries.get_mut(id).ok_or(TranslateError::Structure("try without its analysis"))
    }
}

fn nth_from_end<T>(items: &[T], depth: u32) -> Option<&T> {
    items.get(items.len().checked_sub(1)?.checked_sub(depth as usize)?)
}

/// The second pass: translation of the legacy instructions.
impl Body<'_, '_> {
    /// Translates `try`.
    pub(super) fn open_try(&mut self, block: wasmparser::BlockType) -> Result<(), TranslateError> {
        let id = self.next_try;
        self.next_try += 1;
        let exceptions = self.exceptions;
        let this = exceptions.get(id)?;
        let signature = Signature::from_block(self.module, &mut self.global_indices, block)?;
        match this.delegate {
            Some(target) => self.open_delegating(id, this, target, &signature),
            None => self.open_catching(id, this, &signature),
        }
    }

    fn open_delegating(
        &mut self,
        id: usize,
        this: &Try,
        target: DelegateTarget,
        signature: &Signature,
    ) -> Result<(), TranslateError> {
        let ty = self.types.block(signature)?;
        let relay = match target {
            DelegateTarget::Nearest => None,
            DelegateTarget::Try(outer) => Some(self.relays.get(outer).copied().flatten()),
            DelegateTarget::Caller => Some(self.relay_to_caller),
        };
        let label = match relay {
            None => self.open(&Instruction::Block(ty)),
            Some(relay) => {
                let relay = relay.ok_or(TranslateError::Structure("delegate without its relay"))?;
                let label = self.depth_of(relay)?;
                self.open(&Instruction::TryTable(ty, Cow::Owned(vec![Catch::AllRef { label }])))
            }
        };
        if this.relay {
            self.open_relay(id, signature)?;
        }
        self.frames.push(Frame { label, kind: FrameKind::Delegating { id } });
        Ok(())
    }

    fn open_catching(&mut self, id: usize, this: &Try, signature: &Signature) -> Result<(), TranslateError> {
        let ty = self.types.block(signature)?;
        let label = self.open(&Instruction::Block(ty));
        let mut clauses = Vec::with_capacity(this.handlers.len());
        for (tag, label) in this.handlers.iter().zip(0..) {
            clauses.push(match (*tag, this.rethrown) {
                (Some(tag), false) => Catch::One { tag, label },
                (Some(tag), true) => Catch::OneRef { tag, label },
                (None, false) => Catch::All { label },
                (None, true) => Catch::AllRef { label },
            });
        }
        for tag in this.handlers.iter().rev() {
            let mut results = match tag {
                Some(tag) => val_types(&mut self.global_indices, self.module.type_of_tag(*tag)?.params())?,
                None => vec![],
            };
            if this.rethrown {
                results.push(EXNREF);
            }
            let ty = self.types.block(&Signature { params: signature.params.clone(), results })?;
            self.open(&Instruction::Block(ty));
        }
        self.open(&Instruction::TryTable(ty, Cow::Owned(clauses)));
        if this.relay {
            self.open_relay(id, signature)?;
        }
        self.frames.push(Frame { label, kind: FrameKind::Catching { id, in_handler: false } });
        Ok(())
    }

    fn open_relay(&mut self, id: usize, signature: &Signature) -> Result<(), TranslateError> {
        let relay = Signature { params: signature.params.clone(), results: vec![EXNREF] };
        let ty = self.types.block(&relay)?;
        let label = self.open(&Instruction::Block(ty));
        *self.relays.get_mut(id).ok_or(TranslateError::Structure("try without its analysis"))? = Some(label);
        Ok(())
    }

    /// Ends a relay inside the construct at `label`: normal execution leaves that construct, and an exception sent here
    /// is thrown.
    pub(super) fn close_relay(&mut self, label: u32) -> Result<(), TranslateError> {
        let label = self.depth_of(label)?;
        self.emit(&Instruction::Br(label));
        self.close();
        self.emit(&Instruction::ThrowRef);
        Ok(())
    }

    /// Ends the `try_table` of a `try`, at its first handler or its end.
    fn close_try_table(&mut self, id: usize) -> Result<(), TranslateError> {
        if self.exceptions.get(id)?.relay {
            // Inside the relay, the try_table is the next construct out.
            let try_table = self.depth.checked_sub(2).ok_or(TranslateError::Structure("unbalanced blocks"))?;
            self.close_relay(try_table)?;
        }
        self.close();
        Ok(())
    }

    /// Translates `catch` and `catch_all`.
    pub(super) fn begin_handler(&mut self) -> Result<(), TranslateError> {
        let Some(Frame { label, kind: FrameKind::Catching { id, in_handler } }) = self.frames.last_mut() else {
            return Err(TranslateError::Structure("catch outside of a try"));
        };
        let (label, id) = (*label, *id);
        if !std::mem::replace(in_handler, true) {
            self.close_try_table(id)?;
        }
        let out = self.depth_of(label)?;
        self.emit(&Instruction::Br(out));
        self.close();
        if self.exceptions.get(id)?.rethrown {
            let local = self.exception_local(id)?;
            self.emit(&Instruction::LocalSet(local));
        }
        Ok(())
    }

    /// Translates `rethrow`.
    pub(super) fn rethrow(&mut self, relative_depth: u32) -> Result<(), TranslateError> {
        let Some(Frame { kind: FrameKind::Catching { id, .. }, .. }) = nth_from_end(&self.frames, relative_depth)
        else {
            return Err(TranslateError::Structure("rethrow outside of a handler"));
        };
        let local = self.exception_local(*id)?;
        self.emit(&Instruction::LocalGet(local));
        self.emit(&Instruction::ThrowRef);
        Ok(())
    }

    /// Translates `delegate`, which is also the end of its `try`.
    pub(super) fn close_delegating(&mut self) -> Result<(), TranslateError> {
        let Some(Frame { label, kind: FrameKind::Delegating { id } }) = self.frames.pop() else {
            return Err(TranslateError::Structure("delegate outside of a try"));
        };
        if self.exceptions.get(id)?.relay {
            self.close_relay(label)?;
        }
        self.close();
        Ok(())
    }

    /// Translates the `end` of a `try` that catches.
    pub(super) fn close_catching(&mut self, id: usize, in_handler: bool) -> Result<(), TranslateError> {
        if !in_handler {
            self.close_try_table(id)?;
        }
        self.close();
        Ok(())
    }

    /// Copies `try_table`, of a module that already has the standard instructions: only its labels change.
    pub(super) fn open_try_table(&mut self, table: wasmparser::TryTable) -> Result<(), TranslateError> {
        let ty = self.global_indices.block_type(table.ty)?;
        let mut clauses = Vec::with_capacity(table.catches.len());
        for clause in table.catches {
            clauses.push(match clause {
                wasmparser::Catch::One { tag, label } => Catch::One { tag, label: self.branch(label)? },
                wasmparser::Catch::OneRef { tag, label } => Catch::OneRef { tag, label: self.branch(label)? },
                wasmparser::Catch::All { label } => Catch::All { label: self.branch(label)? },
                wasmparser::Catch::AllRef { label } => Catch::AllRef { label: self.branch(label)? },
            });
        }
        let label = self.open(&Instruction::TryTable(ty, Cow::Owned(clauses)));
        self.frames.push(Frame { label, kind: FrameKind::Plain });
        Ok(())
    }

    /// Returns the frame that a branch of the original targets.
    pub(super) fn target(&self, relative_depth: u32) -> Result<&Frame, TranslateError> {
        nth_from_end(&self.frames, relative_depth).ok_or(TranslateError::Structure("branch beyond the function"))
    }
}
