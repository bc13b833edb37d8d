//! Exceptions: from the legacy instructions (`try`, `catch`, `delegate`, `rethrow`), which Emscripten's libraries are
//! built with, to the standard ones (`try_table`, `throw_ref`), which are all that wasmtime runs.
//!
//! A legacy handler is a part of its `try`; a standard one is a block that `try_table` branches out to. So each
//! handler becomes the code behind the end of a block of its own, the blocks nested with the first handler innermost:
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
//! - `rethrow` names a `try` in whose handler it stands. It needs the exception as a value: the clauses of such a `try`
//!   are `catch_ref` and `catch_all_ref`, each handler begins by storing the reference in a local that belongs to
//!   the `try`, and `rethrow` becomes `local.get`, `throw_ref`. One local serves, for the handlers of a
//!   `try` exclude each other and none contains its own `try`.
//! - `delegate` hands exceptions of its body to an outer `try`, past those between. When nothing stands
//!   between, the `try` was never needed and becomes a plain block. Otherwise the outer `try` opens, just inside
//!   its own `try_table`, a *relay*: a block to which the inner one sends the exception and which throws it anew:
//!
//!   ```text
//!   try_table (outer's clauses)
//!     block $relay (→ exnref)
//!       …  try_table (catch_all_ref $relay)  delegated body  end  …
//!       br (out of the outer try_table)
//!     end
//!     throw_ref
//!   end
//!   ```
//!
//!   `delegate` to the caller is the same with a relay around the function's whole body.
//!
//! Branches keep their targets: their depths are counted anew, since there are more blocks to leave.
//! A function that has neither exceptions nor anything else to rewrite is copied byte by byte.

use std::borrow::Cow;

use wasm_encoder::reencode::Reencode;
use wasm_encoder::{Catch, Instruction, RefType, ValType};
use wasmparser::{FunctionBody, Operator};

use super::TranslateError;
use super::body::{Body, Frame, FrameKind};
use super::types::{Signature, val_types};

/// The type of an exception held as a value.
pub(super) const EXNREF: ValType = ValType::Ref(RefType::EXNREF);

/// What a first pass over a body finds out, before any of it is written.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The body's `try`s, in the order in which they begin.
    pub(super) tries: Vec<Try>,
    /// Whether a `delegate` reaches the caller past a `try`.
    pub(super) relay_to_caller: bool,
    /// Whether there is a loop or a tail call: what can run forever without deepening the stack.
    pub(super) can_run_forever: bool,
    /// Whether there is a tail call.
    pub(super) tail_calls: bool,
}

/// One `try`.
#[derive(Debug, Default)]
pub(super) struct Try {
    /// The tag of each handler, `None` for `catch_all`.
    handlers: Vec<Option<u32>>,
    /// Whether some `rethrow` names it.
    pub(super) rethrown: bool,
    /// Where it delegates to, when it ends so.
    delegate: Option<Target>,
    /// Whether another `try` delegates to it past a third.
    relay: bool,
}

/// Where a `delegate` sends exceptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// To the `try` that would get them anyway.
    Nearest,
    /// To that `try`.
    Try(usize),
    /// Out of the function.
    Caller,
}

/// A construct that is open during the first pass.
#[derive(Clone, Copy)]
struct Open {
    kind: OpenKind,
    /// The innermost `try` whose body this is or stands in: who gets an exception thrown here.
    guard: Option<usize>,
}

#[derive(Clone, Copy)]
enum OpenKind {
    Plain,
    TryBody(usize),
    Handler(usize),
}

/// Opens a construct inside of those that are open.
fn push(open: &mut Vec<Open>, kind: OpenKind) {
    let guard = match kind {
        OpenKind::TryBody(id) => Some(id),
        OpenKind::Plain | OpenKind::Handler(_) => open.last().and_then(|around| around.guard),
    };
    open.push(Open { kind, guard });
}

impl Survey {
    /// Reads a function's body. `function` is its index.
    pub(super) fn of(function: u32, body: &FunctionBody<'_>) -> Result<Self, TranslateError> {
        const UNBALANCED: TranslateError = TranslateError::Structure("unbalanced blocks");
        let refuse = |instruction, reason| Err(TranslateError::Instruction { function, instruction, reason });
        let mut survey = Self::default();
        let mut open = vec![];
        push(&mut open, OpenKind::Plain);
        let mut try_table = false;
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            match operators.read()? {
                Operator::Block { .. } | Operator::If { .. } => push(&mut open, OpenKind::Plain),
                Operator::Loop { .. } => {
                    survey.can_run_forever = true;
                    push(&mut open, OpenKind::Plain);
                }
                Operator::TryTable { .. } => {
                    try_table = true;
                    push(&mut open, OpenKind::Plain);
                }
                Operator::Try { .. } => {
                    push(&mut open, OpenKind::TryBody(survey.tries.len()));
                    survey.tries.push(Try::default());
                }
                Operator::Catch { tag_index } => survey.add_handler(&mut open, Some(tag_index))?,
                Operator::CatchAll => survey.add_handler(&mut open, None)?,
                Operator::Rethrow { relative_depth } => {
                    let Some(Open { kind: OpenKind::Handler(id), .. }) = nth_from_end(&open, relative_depth) else {
                        return Err(TranslateError::Structure("rethrow outside of a handler"));
                    };
                    survey.get_mut(*id)?.rethrown = true;
                }
                Operator::Delegate { relative_depth } => {
                    let Some(Open { kind: OpenKind::TryBody(id), .. }) = open.pop() else { return Err(UNBALANCED) };
                    survey.delegate(&open, id, relative_depth)?;
                }
                Operator::End => {
                    open.pop().ok_or(UNBALANCED)?;
                }
                Operator::ReturnCall { .. } | Operator::ReturnCallIndirect { .. } => {
                    survey.can_run_forever = true;
                    survey.tail_calls = true;
                }
                Operator::MemoryInit { .. } => {
                    return refuse("memory.init", "data segments are taken out of the module");
                }
                Operator::DataDrop { .. } => return refuse("data.drop", "data segments are taken out of the module"),
                Operator::BrOnNull { .. }
                | Operator::BrOnNonNull { .. }
                | Operator::BrOnCast { .. }
                | Operator::BrOnCastFail { .. } => return refuse("br_on_…", "Emscripten emits no such branches"),
                _ => {}
            }
        }
        if try_table && !survey.tries.is_empty() {
            return refuse("try_table", "the function has legacy exceptions too");
        }
        Ok(survey)
    }

    fn add_handler(&mut self, open: &mut Vec<Open>, tag: Option<u32>) -> Result<(), TranslateError> {
        let Some(Open { kind: OpenKind::TryBody(id) | OpenKind::Handler(id), .. }) = open.pop() else {
            return Err(TranslateError::Structure("catch outside of a try"));
        };
        self.get_mut(id)?.handlers.push(tag);
        push(open, OpenKind::Handler(id));
        Ok(())
    }

    /// Notes where the `try` named `id` delegates to. `open` is what is open around it.
    fn delegate(&mut self, open: &[Open], id: usize, relative_depth: u32) -> Result<(), TranslateError> {
        // The label may belong to any construct; what counts is who guards it.
        const BEYOND: TranslateError = TranslateError::Structure("delegate beyond the function");
        let wanted = nth_from_end(open, relative_depth).ok_or(BEYOND)?.guard;
        let target = if wanted == open.last().ok_or(BEYOND)?.guard {
            Target::Nearest
        } else if let Some(outer) = wanted {
            self.get_mut(outer)?.relay = true;
            Target::Try(outer)
        } else {
            self.relay_to_caller = true;
            Target::Caller
        };
        self.get_mut(id)?.delegate = Some(target);
        Ok(())
    }

    pub(super) fn get(&self, id: usize) -> Result<&Try, TranslateError> {
        self.tries.get(id).ok_or(TranslateError::Structure("try without its survey"))
    }

    fn get_mut(&mut self, id: usize) -> Result<&mut Try, TranslateError> {
        self.tries.get_mut(id).ok_or(TranslateError::Structure("try without its survey"))
    }
}

fn nth_from_end<T>(items: &[T], depth: u32) -> Option<&T> {
    items.get(items.len().checked_sub(1)?.checked_sub(depth as usize)?)
}

/// The second pass: what becomes of the legacy instructions.
impl Body<'_, '_> {
    /// `try`.
    pub(super) fn open_try(&mut self, block: wasmparser::BlockType) -> Result<(), TranslateError> {
        let id = self.next_try;
        self.next_try += 1;
        let survey = self.survey;
        let this = survey.get(id)?;
        let signature = Signature::of(self.module, &mut self.renumber, block)?;
        match this.delegate {
            Some(target) => self.open_delegating(id, this, target, &signature),
            None => self.open_catching(id, this, &signature),
        }
    }

    fn open_delegating(
        &mut self,
        id: usize,
        this: &Try,
        target: Target,
        signature: &Signature,
    ) -> Result<(), TranslateError> {
        let ty = self.types.block(signature)?;
        let relay = match target {
            Target::Nearest => None,
            Target::Try(outer) => Some(self.relays.get(outer).copied().flatten()),
            Target::Caller => Some(self.relay_to_caller),
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
                Some(tag) => val_types(&mut self.renumber, self.module.type_of_tag(*tag)?.params())?,
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
        *self.relays.get_mut(id).ok_or(TranslateError::Structure("try without its survey"))? = Some(label);
        Ok(())
    }

    /// Ends a relay inside the construct at `label`: what ends normally leaves that, what was sent here is thrown.
    pub(super) fn close_relay(&mut self, label: u32) -> Result<(), TranslateError> {
        let label = self.depth_of(label)?;
        self.emit(&Instruction::Br(label));
        self.close();
        self.emit(&Instruction::ThrowRef);
        Ok(())
    }

    /// Ends the `try_table` of a `try`, at its first handler or its end.
    fn close_try_table(&mut self, id: usize) -> Result<(), TranslateError> {
        if self.survey.get(id)?.relay {
            // Inside the relay, the try_table is the next construct out.
            let try_table = self.depth.checked_sub(2).ok_or(TranslateError::Structure("unbalanced blocks"))?;
            self.close_relay(try_table)?;
        }
        self.close();
        Ok(())
    }

    /// `catch` and `catch_all`.
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
        if self.survey.get(id)?.rethrown {
            let local = self.exception_local(id)?;
            self.emit(&Instruction::LocalSet(local));
        }
        Ok(())
    }

    /// `rethrow`.
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

    /// `delegate`, which is also the end of its `try`.
    pub(super) fn close_delegating(&mut self) -> Result<(), TranslateError> {
        let Some(Frame { label, kind: FrameKind::Delegating { id } }) = self.frames.pop() else {
            return Err(TranslateError::Structure("delegate outside of a try"));
        };
        if self.survey.get(id)?.relay {
            self.close_relay(label)?;
        }
        self.close();
        Ok(())
    }

    /// The `end` of a `try` that catches.
    pub(super) fn close_catching(&mut self, id: usize, in_handler: bool) -> Result<(), TranslateError> {
        if !in_handler {
            self.close_try_table(id)?;
        }
        self.close();
        Ok(())
    }

    /// `try_table`, of a module that already has the standard instructions: only its labels change.
    pub(super) fn open_try_table(&mut self, table: wasmparser::TryTable) -> Result<(), TranslateError> {
        let ty = self.renumber.block_type(table.ty)?;
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

    /// The frame that a branch of the original names.
    pub(super) fn target(&self, relative_depth: u32) -> Result<&Frame, TranslateError> {
        nth_from_end(&self.frames, relative_depth).ok_or(TranslateError::Structure("branch beyond the function"))
    }
}
