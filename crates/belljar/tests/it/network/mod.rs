//! Network access of code, with real servers on loopback: libraries, protocols, the policy, secrets, and attacks.

mod attacks;
mod cases;
mod documented;
mod libraries;
mod policy;
mod protocols;
mod secrets;
mod sessions;
