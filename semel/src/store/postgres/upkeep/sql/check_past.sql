-- Skips the next entry of semel.unsettled without reading its record, which is on a damaged page,
-- and removes the entry. A sweep enters the record again as soon as it can be read; see prune.sql.
--
-- No parameters. No rows.
with
found as materialized (
    select checked_at, checked_id
    from semel.upkeep
    for update skip locked
),
next as materialized (
    select entry.created_at, entry.id
    from semel.unsettled as entry
    where (entry.created_at, entry.id) > ((select checked_at from found), (select checked_id from found))
    order by entry.created_at, entry.id
    limit 1
),
gone as (
    delete from semel.unsettled as entry
    using next
    where entry.created_at = next.created_at
        and entry.id = next.id
)
update semel.upkeep
set checked_at = next.created_at,
    checked_id = next.id
from next
