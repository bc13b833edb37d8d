//! Tests of inference, from source to requirements.

use super::{AvailableModules, Dependencies, DependencyError};
use crate::platform::Platform;
use crate::requirement::{Requirement, RequirementError};

fn available_modules() -> AvailableModules {
    AvailableModules::new(&Platform::cpython_3_14())
}

fn dependencies(source: &str) -> Dependencies {
    Dependencies::from_code(source, &available_modules()).unwrap()
}

fn texts<'a>(requirements: impl IntoIterator<Item = &'a Requirement>) -> Vec<String> {
    requirements.into_iter().map(ToString::to_string).collect()
}

#[test]
fn available_modules_need_no_packages() {
    assert!(dependencies("import json, os.path\nfrom compression import zstd\nimport js\n").is_empty());
    let available = available_modules().with_modules(["numpy", "google.protobuf"]);
    let dependencies = Dependencies::from_code(
        "import numpy.linalg\nfrom google.protobuf import message\nimport google.auth\n",
        &available,
    );
    assert_eq!(texts(dependencies.unwrap().required()), ["google-auth"]);
}

#[test]
fn modules_are_mapped_to_their_packages() {
    let dependencies = dependencies(
        "import cv2, PIL.Image, yaml, sklearn.svm\nfrom bs4 import BeautifulSoup\nimport typing_extensions\n",
    );
    assert_eq!(
        texts(dependencies.required()),
        ["beautifulsoup4", "opencv-python", "pillow", "pyyaml", "scikit-learn", "typing-extensions"]
    );
    assert_eq!(dependencies.imports, ["PIL.Image", "bs4", "cv2", "sklearn.svm", "typing_extensions", "yaml"]);
}

#[test]
fn imported_names_determine_parts_of_namespace_packages() {
    let dependencies = dependencies(
        "from google.cloud import storage\nfrom google import genai\nimport ruamel.yaml\nimport zope.interface\n",
    );
    assert_eq!(
        texts(dependencies.required()),
        ["google-cloud-storage", "google-genai", "ruamel-yaml", "zope-interface"]
    );
}

#[test]
fn optional_imports_give_optional_requirements() {
    let dependencies = dependencies("import rich\ntry:\n    import numpy\nexcept ImportError:\n    numpy = None\n");
    assert_eq!(texts(dependencies.required()), ["rich"]);
    assert_eq!(texts(&dependencies.optional), ["numpy"]);
}

#[test]
fn metadata_block_replaces_inference() {
    let source = "# /// script\n# dependencies = [\"rich<13\", \"pydantic[email]\"]\n# ///\nimport numpy\n";
    let dependencies = dependencies(source);
    assert_eq!(texts(dependencies.required()), ["rich<13", "pydantic[email]"]);
    assert_eq!(dependencies.imports, ["numpy"]);
}

#[test]
fn script_for_another_python_is_refused_with_both_versions() {
    let script = |python: &str| format!("# /// script\n# requires-python = \"{python}\"\n# ///\n");
    let error = Dependencies::from_code(&script("<3.12"), &available_modules()).unwrap_err().to_string();
    assert!(error.contains("<3.12") && error.contains("3.14.2"), "{error}");
    assert!(Dependencies::from_code(&script(">=3.9"), &available_modules()).is_ok());
    assert!(matches!(
        Dependencies::from_code(&script("three"), &available_modules()),
        Err(DependencyError::Block { .. })
    ));
}

#[test]
fn pre_release_satisfies_requires_python() {
    let platform = Platform { python: (3, 15, 0), pre_release: "a2".into(), ..Platform::cpython_3_14() };
    let source = "# /// script\n# requires-python = \">=3.15\"\n# ///\n";
    assert!(Dependencies::from_code(source, &AvailableModules::new(&platform)).is_ok());
}

#[test]
fn metadata_block_with_a_url_or_path_is_refused() {
    for dependency in ["x @ https://example.org/x.whl", "./x", "x @ file:///tmp/x", "--index-url=https://example.org"] {
        let source = format!("# /// script\n# dependencies = [\"{dependency}\"]\n# ///\n");
        let error = Dependencies::from_code(&source, &available_modules()).unwrap_err();
        let refused = matches!(
            error,
            DependencyError::Requirement(RequirementError::Url { .. } | RequirementError::Option { .. })
        );
        assert!(refused, "{dependency}: {error}");
    }
}

#[test]
fn code_with_a_syntax_error_has_no_dependencies() {
    assert_eq!(dependencies("import numpy\nthis is no python\n"), Dependencies::default());
}

#[test]
fn invalid_package_names_are_ignored() {
    assert!(dependencies("import _\nimport ünïcode\n").is_empty());
}

#[test]
fn explicit_requirements_replace_inferred_ones() {
    let dependencies =
        dependencies("import rich\nimport attrs\n").with_requirements([Requirement::parse("rich<13").unwrap()]);
    assert_eq!(texts(dependencies.required()), ["rich<13", "attrs"]);
}

#[test]
fn dependencies_of_several_sources_are_merged() {
    let first = dependencies("import rich\ntry:\n    import numpy\nexcept ImportError:\n    import attrs\n");
    let second = dependencies("import numpy, rich\n");
    let third = dependencies("# /// script\n# dependencies = ['rich<13']\n# ///\nimport rich\n");
    let merged = first.merged(second).merged(third);
    assert_eq!(texts(merged.required()), ["rich<13", "numpy"]);
    assert_eq!(texts(&merged.optional), ["attrs"]);
    assert_eq!(merged.imports, ["attrs", "numpy", "rich"]);
}
