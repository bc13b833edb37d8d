//! Programs that import packages just run: each file of `tests/packages/programs` asserts what it expects.

use crate::harness::Belljar;

fn runs(name: &str) {
    let path = format!("{}/tests/packages/programs/{name}.py", env!("CARGO_MANIFEST_DIR"));
    let run = Belljar::new().args(["run", &path]).run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), ""), "{run:?}");
}

macro_rules! programs {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                runs(stringify!($name));
            }
        )*

        #[test]
        fn every_program_is_run() {
            let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/packages/programs");
            let mut files: Vec<String> = std::fs::read_dir(directory)
                .unwrap()
                .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            files.sort();
            assert_eq!(files, [$(stringify!($name)),*]);
        }
    };
}

programs! {
    anthropic_imports
    compiled
    httpx_imports
    joblib_and_tqdm
    metadata
    optional_imports
    plotly_figures
    pure_packages
    pydantic_models
    requests_imports
    rich_tables
    sympy_integrals
    time_zones
}
