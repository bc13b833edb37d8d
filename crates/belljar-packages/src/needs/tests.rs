//! What code needs, from source to requirements.

use super::{Known, Needs, NeedsError, of_code};
use crate::platform::Platform;
use crate::requirement::{Requirement, RequirementError};

fn known() -> Known {
    Known::new(&Platform::cpython_3_14())
}

fn needs(source: &str) -> Needs {
    of_code(source, &known()).unwrap()
}

fn texts<'a>(requirements: impl IntoIterator<Item = &'a Requirement>) -> Vec<String> {
    requirements.into_iter().map(ToString::to_string).collect()
}

#[test]
fn the_standard_library_and_what_is_there_need_nothing() {
    assert!(needs("import json, os.path\nfrom compression import zstd\nimport js\n").is_empty());
    let known = known().with_modules(["numpy", "google.protobuf"]);
    let needs = of_code("import numpy.linalg\nfrom google.protobuf import message\nimport google.auth\n", &known);
    assert_eq!(texts(needs.unwrap().required()), ["google-auth"]);
}

#[test]
fn modules_are_mapped_to_the_packages_that_provide_them() {
    let needs =
        needs("import cv2, PIL.Image, yaml, sklearn.svm\nfrom bs4 import BeautifulSoup\nimport typing_extensions\n");
    assert_eq!(
        texts(needs.required()),
        ["beautifulsoup4", "opencv-python", "pillow", "pyyaml", "scikit-learn", "typing-extensions"]
    );
    assert_eq!(needs.imports, ["PIL.Image", "bs4", "cv2", "sklearn.svm", "typing_extensions", "yaml"]);
}

#[test]
fn parts_of_namespaces_are_told_by_what_is_imported_from_them() {
    let needs = needs(
        "from google.cloud import storage\nfrom google import genai\nimport ruamel.yaml\nimport zope.interface\n",
    );
    assert_eq!(texts(needs.required()), ["google-cloud-storage", "google-genai", "ruamel-yaml", "zope-interface"]);
}

#[test]
fn optional_imports_are_kept_apart() {
    let needs = needs("import rich\ntry:\n    import numpy\nexcept ImportError:\n    numpy = None\n");
    assert_eq!(texts(needs.required()), ["rich"]);
    assert_eq!(texts(&needs.optional), ["numpy"]);
}

#[test]
fn a_metadata_block_takes_the_place_of_inference() {
    let source = "# /// script\n# dependencies = [\"rich<13\", \"pydantic[email]\"]\n# ///\nimport numpy\n";
    let needs = needs(source);
    assert_eq!(texts(needs.required()), ["rich<13", "pydantic[email]"]);
    assert_eq!(needs.imports, ["numpy"]);
}

#[test]
fn a_script_for_another_python_is_refused_with_both_versions() {
    let script = |python: &str| format!("# /// script\n# requires-python = \"{python}\"\n# ///\n");
    let error = of_code(&script("<3.12"), &known()).unwrap_err().to_string();
    assert!(error.contains("<3.12") && error.contains("3.14.2"), "{error}");
    assert!(of_code(&script(">=3.9"), &known()).is_ok());
    assert!(matches!(of_code(&script("three"), &known()), Err(NeedsError::Block { .. })));
}

#[test]
fn a_pre_release_runs_what_wants_its_version() {
    let platform = Platform { python: (3, 15, 0), pre_release: "a2".into(), ..Platform::cpython_3_14() };
    let source = "# /// script\n# requires-python = \">=3.15\"\n# ///\n";
    assert!(of_code(source, &Known::new(&platform)).is_ok());
}

#[test]
fn a_block_that_names_a_place_is_refused() {
    for dependency in ["x @ https://example.org/x.whl", "./x", "x @ file:///tmp/x", "--index-url=https://example.org"] {
        let source = format!("# /// script\n# dependencies = [\"{dependency}\"]\n# ///\n");
        let error = of_code(&source, &known()).unwrap_err();
        let refused = matches!(
            error,
            NeedsError::Requirement(RequirementError::Address { .. } | RequirementError::Option { .. })
        );
        assert!(refused, "{dependency}: {error}");
    }
}

#[test]
fn code_that_does_not_parse_needs_nothing() {
    assert_eq!(needs("import numpy\nthis is no python\n"), Needs::default());
}

#[test]
fn names_that_no_package_can_have_need_nothing() {
    assert!(needs("import _\nimport ünïcode\n").is_empty());
}

#[test]
fn given_requirements_take_the_place_of_inferred_ones() {
    let needs = needs("import rich\nimport attrs\n").with([Requirement::parse("rich<13").unwrap()]);
    assert_eq!(texts(needs.required()), ["rich<13", "attrs"]);
}
