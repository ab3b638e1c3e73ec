    local held, clean, delay = meta[3 * i + 3], meta[3 * i + 4], meta[3 * i + 5]
    out[i + 4] = {'granted', number, math.max(tonumber(held or '0'), held_floor), clean or '0', delay or '0|0'}
  end
end
out[4] = counter
return out
