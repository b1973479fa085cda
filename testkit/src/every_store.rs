//! The macro that runs tests on every store.

/// Defines tests for every store: a module for each store, with a test for each function, which
/// gets a new [`Place`](crate::stores::Place) on that store.
///
/// ```text
/// on_every_store! {
///     a_key_runs_once,
///     #[tokio::test(flavor = "multi_thread")]
///     many_keys_run_once,
/// }
///
/// async fn a_key_runs_once(place: Place) { … }
/// ```
/// Tests for some stores only, or with a place of another type, name both. The type is
/// written with its whole path, and has an asynchronous constructor with the name of each store.
///
/// ```text
/// on_every_store! { testkit::stores::Place [sqlite, postgres] { the_schema_can_be_removed } }
/// ```
#[macro_export]
macro_rules! on_every_store {
    (@stores [$($store:ident),+] $place:ty, $facts:tt) => {
        $(mod $store { $crate::on_every_store!(@tests $place, $store, $facts); })+
    };
    (@tests $place:ty, $store:ident, { $($(#[$test:meta])? $fact:ident),+ $(,)? }) => {
        $($crate::on_every_store!(@test [$($test)?] $place, $store, $fact);)+
    };
    (@test [] $place:ty, $store:ident, $fact:ident) => {
        $crate::on_every_store!(@test [tokio::test] $place, $store, $fact);
    };
    (@test [$test:meta] $place:ty, $store:ident, $fact:ident) => {
        #[$test]
        async fn $fact() {
            super::$fact(<$place>::$store().await).await;
        }
    };
    ($place:ty [$($store:ident),+] { $($facts:tt)+ }) => {
        $crate::on_every_store!(@stores [$($store),+] $place, { $($facts)+ });
    };
    ($($facts:tt)+) => {
        $crate::on_every_store!(
            @stores [memory, sqlite, postgres, redis, tiered] $crate::stores::Place, { $($facts)+ }
        );
    };
}
