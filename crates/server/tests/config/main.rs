//! Configuration: what compiles, what `check` reports about a mistake (snapshots), and the JSON Schema for editors.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod alerts;
mod any_text;
mod connectors;
mod contacts;
mod crm;
mod declared;
mod editor;
mod good;
mod guard;
mod json_schema;
mod lookups;
mod mistakes;
mod oidc;
mod playbooks;
mod traces;
mod upsert;
