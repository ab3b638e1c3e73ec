    local held, clean, delay, mark = meta[4 * i + 2], meta[4 * i + 3], meta[4 * i + 4], meta[4 * i + 5]
    out[i + 4] = {'granted', number, math.max(tonumber(held or '0'), held_floor), clean or '0', delay or '0|0', mark or ''}
  end
end
out[4] = counter
return out
