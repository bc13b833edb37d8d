//! Tests that run translated modules, given as text.

mod exceptions;
mod inline;
mod linking;
mod refusals;
mod safepoints;
mod stack_checks;
mod stack_padding;

use wasmtime::{Engine, Extern, Instance, Module, Store, ThrownException, WasmParams, WasmResults};

use super::{Options, Symbol, Translated, translate};

/// Translates a module given as text.
fn translated(text: &str, options: &Options) -> Translated {
    let wasm = wat::parse_str(text).unwrap();
    translate(&wasm, options).unwrap()
}

/// A main module without imports, translated and instantiated.
struct Guest {
    translated: Translated,
    store: Store<()>,
    instance: Instance,
}

impl Guest {
    fn new(text: &str) -> Self {
        Self::with(text, &Options::default())
    }

    fn with(text: &str, options: &Options) -> Self {
        let translated = translated(text, options);
        let engine = engine();
        let mut store = Store::new(&engine, ());
        let module = Module::new(&engine, &translated.wasm).unwrap();
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        Self { translated, store, instance }
    }

    /// Calls an export. An exception that leaves it is `Err("thrown")`, any other error is `Err("trapped")`.
    fn call<P: WasmParams, R: WasmResults>(&mut self, name: &str, params: P) -> Result<R, &'static str> {
        let function = self.instance.get_typed_func::<P, R>(&mut self.store, name).unwrap();
        let result = function.call(&mut self.store, params);
        result.map_err(|error| if error.is::<ThrownException>() { "thrown" } else { "trapped" })
    }

    /// Calls a function through its slot in the function table, as another module would.
    fn call_symbol<P: WasmParams, R: WasmResults>(&mut self, name: &str, params: P) -> R {
        let slot = function_slot(&self.translated, name);
        let table = self.instance.get_table(&mut self.store, "__indirect_function_table").unwrap();
        let entry = table.get(&mut self.store, u64::from(slot)).unwrap();
        let function = entry.unwrap_func().unwrap().typed::<P, R>(&self.store).unwrap();
        function.call(&mut self.store, params).unwrap()
    }

    fn global(&mut self, name: &str) -> i32 {
        self.instance.get_global(&mut self.store, name).unwrap().get(&mut self.store).unwrap_i32()
    }

    fn exports(&mut self) -> Vec<String> {
        self.instance.exports(&mut self.store).map(|export| export.name().to_owned()).collect()
    }
}

fn function_slot(translated: &Translated, name: &str) -> u32 {
    match translated.symbols.0[name] {
        Symbol::Function(slot) => slot,
        Symbol::Data(address) => panic!("{name} is data at {address}"),
    }
}

fn engine() -> Engine {
    crate::Engine::new(crate::InterruptMode::Safepoint).unwrap().wasmtime().clone()
}

/// Instantiates a module with these imports, in order.
fn instantiate(store: &mut Store<()>, wasm: &[u8], imports: &[Extern]) -> Instance {
    let module = Module::new(store.engine(), wasm).unwrap();
    Instance::new(store, &module, imports).unwrap()
}
