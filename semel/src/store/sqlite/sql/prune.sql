-- Removes some expired records, those first that have been so for longest.
--
-- It runs under the lock of the only writer: a key that was claimed anew before stays.
--
-- ?1 when the retention must have been over, ?2 realm or null, ?3 how many at most
delete from semel_records
where rowid in (
    select rowid
    from semel_records
    where expires_at <= ?1
        and (?2 is null or realm = ?2)
    order by expires_at
    limit ?3
)
