//! The executables of Postgres, and the URLs of its servers.

use std::path::{Path, PathBuf};

use crate::packages::{Kind, newest_first};

/// Postgres as packages lay it out: most keep it off PATH, in a folder for each version.
pub(crate) const POSTGRES: Kind = Kind {
    name: "postgres",
    variable: "SEMEL_TEST_POSTGRES_URL",
    package: "postgresql",
    programs: &["postgres", "initdb", "pg_basebackup", "psql"],
    folders,
    version,
    url,
};

fn folders(root: &Path) -> Vec<PathBuf> {
    let places = [
        ("usr/lib/postgresql", ""),
        ("usr", "pgsql-"),
        ("usr/local", "pgsql-"),
        ("opt/homebrew/opt", "postgresql@"),
        ("usr/local/opt", "postgresql@"),
    ];
    let versions = places.iter().flat_map(|(parent, prefix)| newest_first(&root.join(parent), prefix));
    versions.map(|version| version.join("bin")).collect()
}

/// The third word of `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn version(answer: &str) -> Option<&str> {
    answer.strip_prefix("postgres (PostgreSQL) ")?.split_whitespace().next()
}

/// The folder of the socket is the host, and its slashes would end the host.
fn url(folder: &str) -> String {
    format!("postgres://postgres@{}/postgres", folder.replace('/', "%2F"))
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn url_names_the_folder_of_the_socket() {
        assert_eq!(url("/tmp/semel-a1"), "postgres://postgres@%2Ftmp%2Fsemel-a1/postgres");
    }

    #[test]
    fn version_is_read() {
        assert_eq!(version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some("15.18"));
        assert_eq!(version("postgres (PostgreSQL) 17devel\n"), Some("17devel"));
        assert_eq!(version("something else 1.0\n"), None);
    }
}
