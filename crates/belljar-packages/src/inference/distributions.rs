//! The mapping from module names to distribution names, where the two differ.
//!
//! Every entry was reviewed individually: the distribution is the one that its project's documentation recommends to
//! install, it is maintained, and it contains the module. Tables from other projects are not copied, since they contain
//! names that were abandoned and later registered by others. Names that differ only in `_` for `-` or in case have no
//! entry.

use crate::lookalikes;

/// Pairs of module and distribution, sorted by module. A dotted module is a part of a namespace package.
#[rustfmt::skip]
static REVIEWED: &[(&str, &str)] = &[
    ("Bio", "biopython"),
    ("Crypto", "pycryptodome"),
    ("Cryptodome", "pycryptodomex"),
    ("IPython", "ipython"),
    ("Levenshtein", "levenshtein"),
    ("MySQLdb", "mysqlclient"),
    ("OpenSSL", "pyopenssl"),
    ("PIL", "pillow"),
    ("attr", "attrs"),
    ("barcode", "python-barcode"),
    ("bs4", "beautifulsoup4"),
    ("chess", "chess"),
    ("community", "python-louvain"),
    ("cv2", "opencv-python"),
    ("dateutil", "python-dateutil"),
    ("discord", "discord-py"),
    ("distutils", "setuptools"),
    ("dns", "dnspython"),
    ("docx", "python-docx"),
    ("dotenv", "python-dotenv"),
    ("faiss", "faiss-cpu"),
    ("fitz", "pymupdf"),
    ("fontTools", "fonttools"),
    ("git", "gitpython"),
    ("github", "pygithub"),
    ("gitlab", "python-gitlab"),
    ("google.auth", "google-auth"),
    ("google.genai", "google-genai"),
    ("google.generativeai", "google-generativeai"),
    ("google.oauth2", "google-auth"),
    ("google.protobuf", "protobuf"),
    ("googleapiclient", "google-api-python-client"),
    ("gridfs", "pymongo"),
    ("hydra", "hydra-core"),
    ("imblearn", "imbalanced-learn"),
    ("jose", "python-jose"),
    ("jwt", "pyjwt"),
    ("kafka", "kafka-python"),
    ("ldap", "python-ldap"),
    ("lxml_html_clean", "lxml-html-clean"),
    ("magic", "python-magic"),
    ("mpl_toolkits", "matplotlib"),
    ("multipart", "python-multipart"),
    ("nacl", "pynacl"),
    ("pkg_resources", "setuptools"),
    ("pptx", "python-pptx"),
    ("psycopg2", "psycopg2-binary"),
    ("pycocotools", "pycocotools"),
    ("pylab", "matplotlib"),
    ("pymupdf", "pymupdf"),
    ("pythonjsonlogger", "python-json-logger"),
    ("pywt", "pywavelets"),
    ("ruamel.yaml", "ruamel-yaml"),
    ("serial", "pyserial"),
    ("shapefile", "pyshp"),
    ("skimage", "scikit-image"),
    ("sklearn", "scikit-learn"),
    ("skopt", "scikit-optimize"),
    ("slugify", "python-slugify"),
    ("snappy", "python-snappy"),
    ("socketio", "python-socketio"),
    ("socks", "pysocks"),
    ("speech_recognition", "speechrecognition"),
    ("stdnum", "python-stdnum"),
    ("telegram", "python-telegram-bot"),
    ("tlz", "toolz"),
    ("umap", "umap-learn"),
    ("usb", "pyusb"),
    ("win32com", "pywin32"),
    ("xdist", "pytest-xdist"),
    ("yaml", "pyyaml"),
    ("zmq", "pyzmq"),
];

/// Namespace packages whose parts belong to distributions named after the part: `azure.identity` is in
/// `azure-identity`.
static NAMESPACES: &[&str] = &[
    "azure",
    "backports",
    "flufl",
    "google",
    "google.cloud",
    "jaraco",
    "opentelemetry",
    "ruamel",
    "sphinxcontrib",
    "zope",
];

/// Returns the reviewed table's distribution for a module, or for the longest listed prefix of its dotted name.
pub(crate) fn reviewed_distribution(module: &str) -> Option<&'static str> {
    let mut part = module;
    loop {
        if let Ok(index) = REVIEWED.binary_search_by_key(&part, |(module, _)| module) {
            return Some(REVIEWED[index].1);
        }
        part = part.rsplit_once('.')?.0;
    }
}

/// The result of matching a dotted module against the namespace packages.
pub(super) enum NamespaceMatch {
    /// The module is not in a namespace package.
    None,
    /// The module is a namespace package itself, so its name does not determine a distribution.
    Ambiguous,
    /// The module is in this distribution.
    Distribution(String),
}

/// Returns the distribution of a part of a namespace package, which is named after the part.
pub(super) fn namespace_distribution(module: &str) -> NamespaceMatch {
    let Some(namespace) = NAMESPACES
        .iter()
        .filter(|namespace| {
            module.strip_prefix(**namespace).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
        .max_by_key(|namespace| namespace.len())
    else {
        return NamespaceMatch::None;
    };
    let rest = module[namespace.len()..].trim_start_matches('.');
    match rest.split('.').next() {
        None | Some("") => NamespaceMatch::Ambiguous,
        Some(part) => NamespaceMatch::Distribution(format!("{namespace}-{part}").replace(['.', '_'], "-")),
    }
}

/// Returns the names of well-known packages, normalised.
pub(crate) fn known_packages() -> impl Iterator<Item = &'static str> {
    REVIEWED.iter().map(|(_, package)| *package).chain(lookalikes::well_known())
}

/// Returns the names of modules that are known to be in a package with another name, without parts of namespaces.
pub(crate) fn known_modules() -> impl Iterator<Item = &'static str> {
    REVIEWED.iter().map(|(module, _)| *module).filter(|module| !module.contains('.'))
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use uv_normalize::PackageName;

    use super::{NAMESPACES, NamespaceMatch, REVIEWED, namespace_distribution, reviewed_distribution};

    #[test]
    fn tables_are_sorted_and_their_names_normalised() {
        assert!(REVIEWED.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(NAMESPACES.is_sorted());
        for (_, package) in REVIEWED {
            assert_eq!(PackageName::from_str(package).unwrap().as_ref(), *package);
        }
    }

    #[test]
    fn longest_prefix_of_a_dotted_name_decides() {
        assert_eq!(reviewed_distribution("google.protobuf.message"), Some("protobuf"));
        assert_eq!(reviewed_distribution("yaml.loader"), Some("pyyaml"));
        assert_eq!(reviewed_distribution("google"), None);
        assert_eq!(reviewed_distribution("rich"), None);
    }

    #[test]
    fn parts_of_namespace_packages_have_their_own_distributions() {
        let part = |module: &str| match namespace_distribution(module) {
            NamespaceMatch::Distribution(name) => name,
            NamespaceMatch::Ambiguous => "?".into(),
            NamespaceMatch::None => "-".into(),
        };
        assert_eq!(part("google.cloud.storage.blob"), "google-cloud-storage");
        assert_eq!(part("azure.identity"), "azure-identity");
        assert_eq!(part("google.cloud"), "?");
        assert_eq!(part("google"), "?");
        assert_eq!(part("googleapiclient"), "-");
    }
}
