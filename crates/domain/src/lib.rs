//! The types and rules of Sluice: pure decisions without side effects.
//!
//! The crate has no clock, no randomness of its own, no disk, no network and no environment. The caller passes the
//! current time and a seeded [`random::Random`], so the same code runs in production, in tests and in the simulation.
//!
//! An event is accepted once ([`flow`], [`verify`], [`key`], [`event`]), scheduled when due
//! ([`schedule`]), worked step by step ([`worker`], [`template`]), and settled (`settle`) from the
//! [`outcome`] of its effect.

pub mod access;
pub mod action;
pub mod alert;
pub mod approval;
pub mod call_budget;
pub mod config;
pub mod connector;
pub mod contact;
pub mod cron;
pub mod destination;
pub mod diff;
mod digest;
pub mod drift;
pub mod duplicate_stats;
pub mod enrich;
pub mod event;
pub mod event_edit;
pub mod failure_group;
pub mod failure_rules;
pub mod flow;
pub mod hash;
pub mod history;
pub mod idempotent_command;
pub mod import;
pub mod job;
pub mod key;
pub mod ledger_clock;
pub mod mask;
pub mod mutant;
pub mod normalize;
pub mod ops;
pub mod outcome;
mod outputs;
pub mod path;
pub mod payload;
pub mod policy;
pub mod printable;
pub mod pseudonym;
pub mod random;
pub mod record;
pub mod replay;
pub mod respond;
pub mod retry;
pub mod run;
pub mod safe_mode;
pub mod schedule;
pub mod schema;
pub mod script;
mod settle;
pub mod template;
pub mod time;
pub mod trace;
pub mod transition;
mod undo;
pub mod unit;
pub mod upsert;
pub mod verify;
pub mod wait;
pub mod worker;
