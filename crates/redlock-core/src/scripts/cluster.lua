-- Whether a reservation is for this cluster (`<name>/<UID>`): the UID decides, since the name may change. `nobody` is no cluster.
local function is_for(hold, cluster)
  local uid = hold and string.match(hold, '/(.*)$')
  return uid and uid == string.match(cluster, '/(.*)$')
end
