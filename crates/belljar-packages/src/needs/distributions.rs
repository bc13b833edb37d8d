//! From the name that is imported to the name that is installed, where the two differ.
//!
//! Every line was looked at on its own: the distribution is the one that its project's own documentation says to
//! install, it is kept up, and it holds the module. Tables found elsewhere are not taken over, since they hold names
//! that were left and taken again by others. Names that differ only in `_` for `-` or in case need no line.

/// Module (dotted where only a part of a namespace is meant) and distribution, sorted by module.
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

/// Modules whose parts belong to many distributions, each named after its part: `azure.identity` is `azure-identity`.
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

/// Widely used names beside those of the table, for suggestions.
#[rustfmt::skip]
static WELL_KNOWN: &[&str] = &[
    "aiohttp", "altair", "anyio", "arrow", "black", "bokeh", "cachetools", "click", "cryptography", "duckdb",
    "fastapi", "flask", "httpx", "hypothesis", "jinja2", "jsonschema", "keras", "lxml", "markdown", "matplotlib",
    "more-itertools", "msgpack", "mypy", "networkx", "nltk", "numpy", "openpyxl", "orjson", "packaging", "pandas",
    "pendulum", "plotly", "polars", "pyarrow", "pydantic", "pydantic-core", "pydantic-settings", "pygments", "pypdf",
    "pytest", "pytz", "regex", "requests", "rich", "scipy", "seaborn", "shapely", "six", "sqlalchemy", "statsmodels",
    "sympy", "tabulate", "tenacity", "tensorflow", "toml", "tomli", "torch", "tqdm", "typer", "typing-extensions",
    "tzdata", "urllib3", "xarray", "xlsxwriter",
];

/// The distribution that the reviewed table gives for a module, or for the longest part of its dotted name.
pub(crate) fn reviewed(module: &str) -> Option<&'static str> {
    let mut part = module;
    loop {
        if let Ok(index) = REVIEWED.binary_search_by_key(&part, |(module, _)| module) {
            return Some(REVIEWED[index].1);
        }
        part = part.rsplit_once('.')?.0;
    }
}

/// What the rules for namespaces say of a dotted module.
pub(super) enum Namespace {
    /// It is in none.
    No,
    /// It is a namespace, or in one, without saying which part is meant.
    Undecided,
    /// The distribution's name.
    Part(String),
}

/// The distribution of a part of a namespace package, which is called after the part.
pub(super) fn of_namespace(module: &str) -> Namespace {
    let Some(namespace) = NAMESPACES
        .iter()
        .filter(|namespace| {
            module.strip_prefix(**namespace).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
        .max_by_key(|namespace| namespace.len())
    else {
        return Namespace::No;
    };
    let rest = module[namespace.len()..].trim_start_matches('.');
    match rest.split('.').next() {
        None | Some("") => Namespace::Undecided,
        Some(part) => Namespace::Part(format!("{namespace}-{part}").replace(['.', '_'], "-")),
    }
}

/// Names of packages that exist, for suggestions.
pub(crate) fn known_packages() -> impl Iterator<Item = &'static str> {
    REVIEWED.iter().map(|(_, package)| *package).chain(WELL_KNOWN.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use uv_normalize::PackageName;

    use super::{NAMESPACES, Namespace, REVIEWED, WELL_KNOWN, of_namespace, reviewed};

    #[test]
    fn the_table_is_sorted_without_repetition_and_its_names_are_normalised() {
        assert!(REVIEWED.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(WELL_KNOWN.is_sorted());
        assert!(NAMESPACES.is_sorted());
        for (_, package) in REVIEWED {
            assert_eq!(PackageName::from_str(package).unwrap().as_ref(), *package);
        }
    }

    #[test]
    fn the_longest_part_of_a_dotted_name_decides() {
        assert_eq!(reviewed("google.protobuf.message"), Some("protobuf"));
        assert_eq!(reviewed("yaml.loader"), Some("pyyaml"));
        assert_eq!(reviewed("google"), None);
        assert_eq!(reviewed("rich"), None);
    }

    #[test]
    fn parts_of_namespaces_are_packages_of_their_own() {
        let part = |module: &str| match of_namespace(module) {
            Namespace::Part(name) => name,
            Namespace::Undecided => "?".into(),
            Namespace::No => "-".into(),
        };
        assert_eq!(part("google.cloud.storage.blob"), "google-cloud-storage");
        assert_eq!(part("azure.identity"), "azure-identity");
        assert_eq!(part("google.cloud"), "?");
        assert_eq!(part("google"), "?");
        assert_eq!(part("googleapiclient"), "-");
    }
}
