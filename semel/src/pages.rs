//! Pages of the repository whose Rust programs are compiled, and mostly run, as doc tests.
//!
//! The pages are outside the package, so only doc tests may include them.

#[doc = include_str!("../../README.md")]
struct Readme;

#[doc = include_str!("../README.md")]
struct PackageReadme;

#[doc = include_str!("../../docs/quickstarts/axum.md")]
struct Axum;

#[doc = include_str!("../../docs/cookbook/tasks.md")]
struct Tasks;

#[doc = include_str!("../../docs/cookbook/queue.md")]
struct Queue;

#[doc = include_str!("../../docs/cookbook/webhook.md")]
struct Webhook;

#[doc = include_str!("../../docs/cookbook/cron.md")]
struct Cron;

#[doc = include_str!("../../docs/cookbook/outbox.md")]
struct Outbox;

#[doc = include_str!("../../docs/cookbook/reconcile.md")]
struct ReconcileHook;

#[doc = include_str!("../../docs/cookbook/testing.md")]
struct Testing;
