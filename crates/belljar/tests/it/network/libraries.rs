//! Libraries of clients as installed from the index: each file of `tests/network/programs` asserts what it expects.

use crate::network_servers::site;

fn runs(name: &str) {
    let path = format!("{}/tests/network/programs/{name}.py", env!("CARGO_MANIFEST_DIR"));
    let code = std::fs::read_to_string(path).unwrap();
    let run = site().run(&code);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
    if cfg!(target_os = "linux") {
        let answer = site().serve_in("process", &[]).run(&site().filled(&code));
        assert!(answer.contains("<status>success</status>"), "{answer}");
    }
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
            let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/network/programs");
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
    aiohttp_requests
    anthropic_messages
    ftp_refused
    http_client_connections
    httpx2_requests
    httpx_requests
    openai_completions
    pyodide_fetches
    requests_library
    smtp_with_starttls
    urllib3_pools
    urllib_requests
    websockets_echo
}
