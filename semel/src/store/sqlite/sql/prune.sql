-- Removes some expired records, those that expired first.
--
-- The statement runs under the lock of the only writer: a key that was claimed again before stays.
--
-- ?1 the moment before which the retention must have been over, ?2 realm or null, ?3 the largest
-- number of records
delete from semel_records
where rowid in (
    select rowid
    from semel_records
    where expires_at <= ?1
        and (?2 is null or realm = ?2)
    order by expires_at
    limit ?3
)
