//! A server whose disk is full.

use testkit::servers::PostgresServers;
use testkit::servers::SmallDisk;

use crate::connect;

#[tokio::test]
async fn full_disk_refuses_writes_until_there_is_room() {
    let Some(disk) = SmallDisk::for_test(160 * 1024 * 1024) else { return };
    let mut servers = PostgresServers::new().unwrap();
    servers.place("a", disk.path()).unwrap();
    servers.start("a", &[]).unwrap();
    let client = connect(&servers.url("a").unwrap()).await;
    client.batch_execute("create table blobs (blob bytea)").await.unwrap();
    disk.fill().unwrap();
    let insert = "insert into blobs select convert_to(repeat(md5(random()::text), 30), 'UTF8') from generate_series(1, 1000)";
    let refused = client.batch_execute(insert).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "53100", "{refused:?}");
    disk.free().unwrap();
    client.batch_execute(insert).await.unwrap();

    // When there is no space for the log either, the server stops; it is back when there is space.
    disk.fill().unwrap();
    let lost =
        client.batch_execute("select pg_switch_wal(); select pg_switch_wal(); create table more ()").await;
    assert!(lost.is_err());
    disk.free().unwrap();
    // It may have started again by itself.
    let _ = servers.crash("a");
    servers.start("a", &[]).unwrap();
    let client = connect(&servers.url("a").unwrap()).await;
    client.batch_execute(insert).await.unwrap();
}
