;; A helper module that is part of every instance of CPython. Its functions have the same table slots in all instances,
;; so that an image can contain pointers to them.
;;
;; `trampoline_call` calls a C function of unknown arity the way CPython requires.
;;
;; Extension modules cast functions of fewer parameters to `PyCFunctionWithKeywords`. Native ABIs tolerate that; wasm
;; traps on the type. So CPython for Emscripten calls through this function (`_PyRuntime.emscripten_trampoline`), which
;; tests the function's actual type and passes as many arguments as it takes. Its signature and contract: CPython's
;; Python/emscripten_trampoline_inner.c.
;;
;; `host_call` is the host function itself, a `PyCFunction` that takes one argument (see host_calls.rs).
(module
  (type $three (func (param i32 i32 i32) (result i32)))
  (type $two (func (param i32 i32) (result i32)))
  (type $one (func (param i32) (result i32)))
  (type $none (func (result i32)))
  (import "env" "memory" (memory 1))
  (import "env" "__indirect_function_table" (table $functions 1 funcref))
  (import "belljar" "host_call" (func $host_call (type $two)))
  (export "host_call" (func $host_call))

  ;; $success: the address of an int, set to 1 if the function has one of the four types, else to 0.
  (func (export "trampoline_call")
    (param $success i32) (param $function i32) (param $self i32) (param $args i32) (param $kwargs i32)
    (result i32)
    (local $target funcref)
    (i32.store (local.get $success) (i32.const 1))
    (local.set $target (table.get $functions (local.get $function)))
    (if (ref.test (ref $three) (local.get $target))
      (then (return (call_ref $three
        (local.get $self) (local.get $args) (local.get $kwargs)
        (ref.cast (ref $three) (local.get $target))))))
    (if (ref.test (ref $two) (local.get $target))
      (then (return (call_ref $two
        (local.get $self) (local.get $args)
        (ref.cast (ref $two) (local.get $target))))))
    (if (ref.test (ref $one) (local.get $target))
      (then (return (call_ref $one (local.get $self) (ref.cast (ref $one) (local.get $target))))))
    (if (ref.test (ref $none) (local.get $target))
      (then (return (call_ref $none (ref.cast (ref $none) (local.get $target))))))
    (i32.store (local.get $success) (i32.const 0))
    (i32.const 0)))
