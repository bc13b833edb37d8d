//! Black-box tests of `belljar-packages`: real wheels from the index that uv's defaults name, wheels made for the
//! purpose, and a server on loopback that stands for Pyodide's CDN.

mod index;
mod support;
